"""Q5_1: 32 codes of 5 bits, a half-precision scale and minimum.

Block, 24 bytes:   d f16 at 0 | m f16 at 2 | qh u32 at 4 | qs u8[16] at 8
                   weight[i] = d * code[i] + m
                   low 4 bits of code[i] and code[16 + i]: low and high nibble of qs[i];
                   bit 4 of code[i]: bit i of qh
Strip, 16 rows:    d f16[16] | m f16[16] | 4 nibble units of 8 k | 1 unit of the bits 4
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, ruled
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 32, 24


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 24) -> (..., n_blocks * 32)."""
    d, m = layout.halves(blocks[..., :2]), layout.halves(blocks[..., 2:4])
    with np.errstate(invalid="ignore"):
        x = d * _codes(blocks).astype(np.float32) + m
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 32, 24) by the ruled quantizer; importance changes nothing."""
    d, m, q = ruled.span(x.reshape(len(x), -1, VALUES), 31)
    qh = np.packbits(q >> 4 & 1, -1, "little")
    q = layout.join_nibbles(q, 16)
    return np.concatenate([layout.half_bytes(d), layout.half_bytes(m), qh, q], -1)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 24) -> (ceil(rows / 16), n_blocks, 384)."""
    return layout.strips(blocks, lambda b: [b[..., :2], b[..., 2:4], layout.code5_units(_codes(b))])


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 24) -> codes 0..31, d and dm = -m."""
    d, m = layout.halves(blocks[..., :2])[..., 0], layout.halves(blocks[..., 2:4])[..., 0]
    return Ints(_codes(blocks).astype(np.int32).reshape(len(blocks), -1), None, None, d, -m)


def _codes(blocks: U8) -> U8:
    high = np.unpackbits(blocks[..., 4:8], axis=-1, bitorder="little")
    low = layout.split_nibbles(blocks[..., 8:], 16)
    return np.bitwise_or(low, np.left_shift(high, 4))
