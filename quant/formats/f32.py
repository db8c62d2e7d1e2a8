"""F32: plain values.

Block, 4 bytes:    f32                 weight[i] = value
Strip, 16 rows:    f32[16], one per k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout
from quant.formats.layout import F32, U8

VALUES, BYTES = 1, 4


def decode(blocks: U8) -> F32:
    """(..., k, 4) -> (..., k), new; every bit kept, NaN payloads too."""
    return np.ascontiguousarray(blocks).view("<f4")[..., 0].astype(np.float32)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k, 4); importance changes nothing."""
    return x.astype("<f4")[..., None].view(np.uint8)


def pack(blocks: U8) -> U8:
    """(rows, k, 4) -> (ceil(rows / 16), k, 64)."""
    return layout.value_strips(blocks)
