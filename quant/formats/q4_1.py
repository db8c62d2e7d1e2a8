"""Q4_1: 32 codes of 4 bits, a half-precision scale and minimum.

Block, 20 bytes:   d f16 at 0 | m f16 at 2 | qs u8[16] at 4        weight[i] = d * code[i] + m
                   code[i] is the low nibble of qs[i], code[16 + i] the high nibble
Strip, 16 rows:    d f16[16] | m f16[16] | 4 nibble units of 8 k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, ruled
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 32, 20


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 20) -> (..., n_blocks * 32)."""
    d, m = layout.halves(blocks[..., :2]), layout.halves(blocks[..., 2:4])
    with np.errstate(invalid="ignore"):
        x = d * _codes(blocks).astype(np.float32) + m
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 32, 20) by the ruled quantizer; importance changes nothing."""
    d, m, q = ruled.span(x.reshape(len(x), -1, VALUES), 15)
    q = layout.join_nibbles(np.minimum(q, 15), 16)
    return np.concatenate([layout.half_bytes(d), layout.half_bytes(m), q], -1)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 20) -> (ceil(rows / 16), n_blocks, 320)."""
    return layout.strips(
        blocks, lambda b: [b[..., :2], b[..., 2:4], layout.nibble_units(_codes(b))]
    )


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 20) -> codes 0..15, d and dm = -m."""
    d, m = layout.halves(blocks[..., :2])[..., 0], layout.halves(blocks[..., 2:4])[..., 0]
    return Ints(_codes(blocks).astype(np.int32).reshape(len(blocks), -1), None, None, d, -m)


def _codes(blocks: U8) -> U8:
    return layout.split_nibbles(blocks[..., 4:], 16)
