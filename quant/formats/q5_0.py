"""Q5_0: 32 codes of 5 bits and one half-precision scale.

Block, 22 bytes:   d f16 at 0 | qh u32 at 2 | qs u8[16] at 6        weight[i] = d * (code[i] - 16)
                   low 4 bits of code[i] and code[16 + i]: low and high nibble of qs[i];
                   bit 4 of code[i]: bit i of qh
Strip, 16 rows:    d f16[16] | 4 nibble units of 8 k | 1 unit of the bits 4
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, ruled
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 32, 22


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 22) -> (..., n_blocks * 32)."""
    with np.errstate(invalid="ignore"):
        x = layout.halves(blocks[..., :2]) * (_codes(blocks).astype(np.float32) - np.float32(16))
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 32, 22) by the ruled quantizer; importance changes nothing.

    The value of largest magnitude (the first of equals) becomes code 0, -16 d.
    """
    d, q = ruled.signed(x.reshape(len(x), -1, VALUES), 16)
    qh = np.packbits(q >> 4, -1, "little")
    return np.concatenate([layout.half_bytes(d), qh, layout.join_nibbles(q, 16)], -1)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 22) -> (ceil(rows / 16), n_blocks, 352)."""
    return layout.strips(blocks, lambda b: [b[..., :2], layout.code5_units(_codes(b))])


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 22) -> codes -16..15 and d."""
    codes = (_codes(blocks).astype(np.int32) - 16).reshape(len(blocks), -1)
    return Ints(codes, None, None, layout.halves(blocks[..., :2])[..., 0], None)


def _codes(blocks: U8) -> U8:
    high = np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
    low = layout.split_nibbles(blocks[..., 6:], 16)
    return np.bitwise_or(low, np.left_shift(high, 4))
