"""BF16: the upper half of a float32.

Block, 2 bytes:    u16                 weight[i] = float32 with the bits u16 << 16
Strip, 16 rows:    u16[16], one per k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout
from quant.formats.layout import F32, U8

VALUES, BYTES = 1, 2


def decode(blocks: U8) -> F32:
    """(..., k, 2) -> (..., k), exact."""
    upper = np.ascontiguousarray(blocks).view("<u2")[..., 0].astype(np.uint32)
    return (upper << 16).view(np.float32)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k, 2), nearest even, NaN made quiet; importance changes nothing."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest = bits + (0x7FFF + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | 64
    u = np.where(np.isnan(x), quiet, nearest).astype("<u2")
    return u[..., None].view(np.uint8)


def pack(blocks: U8) -> U8:
    """(rows, k, 2) -> (ceil(rows / 16), k, 32)."""
    return layout.value_strips(blocks)
