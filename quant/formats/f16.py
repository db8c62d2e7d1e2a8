"""F16: IEEE half precision.

Block, 2 bytes:    f16                 weight[i] = value
Strip, 16 rows:    f16[16], one per k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

from quant.formats import layout
from quant.formats.layout import F32, U8

VALUES, BYTES = 1, 2


def decode(blocks: U8) -> F32:
    """(..., k, 2) -> (..., k), exact."""
    return layout.halves(blocks)[..., 0]


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k, 2), nearest even, overflow to infinity; importance changes nothing."""
    return layout.half_bytes(x)


def pack(blocks: U8) -> U8:
    """(rows, k, 2) -> (ceil(rows / 16), k, 32)."""
    return layout.value_strips(blocks)
