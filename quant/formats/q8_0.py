"""Q8_0: 32 signed bytes and one half-precision scale.

Block, 34 bytes:   d f16 at 0 | q i8[32] at 2        weight[i] = d * q[i]
Strip, 16 rows:    d f16[16] | 8 units of 4 k, one byte a code
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, ruled
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 32, 34


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 34) -> (..., n_blocks * 32)."""
    with np.errstate(invalid="ignore"):
        x = layout.halves(blocks[..., :2]) * blocks[..., 2:].view(np.int8).astype(np.float32)
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 32, 34) by the ruled quantizer; importance changes nothing."""
    g = x.reshape(len(x), -1, VALUES)
    d = np.abs(g).max(-1) / np.float32(127)
    q = ruled.half_away(g * ruled.reciprocal(d)[..., None]).astype(np.int8)
    return np.concatenate([layout.half_bytes(d), q.view(np.uint8)], -1)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 34) -> (ceil(rows / 16), n_blocks, 544)."""
    return layout.strips(blocks, lambda b: [b[..., :2], layout.units(layout.words(b[..., 2:]))])


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 34) -> codes -128..127 and d."""
    codes = blocks[..., 2:].view(np.int8).astype(np.int32).reshape(len(blocks), -1)
    return Ints(codes, None, None, layout.halves(blocks[..., :2])[..., 0], None)
