"""Q4_0: 32 codes of 4 bits and one half-precision scale.

Block, 18 bytes:   d f16 at 0 | qs u8[16] at 2        weight[i] = d * (code[i] - 8)
                   code[i] is the low nibble of qs[i], code[16 + i] the high nibble
Strip, 16 rows:    d f16[16] | 4 nibble units of 8 k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, ruled
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 32, 18


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 18) -> (..., n_blocks * 32)."""
    with np.errstate(invalid="ignore"):
        x = layout.halves(blocks[..., :2]) * (_codes(blocks).astype(np.float32) - np.float32(8))
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 32, 18) by the ruled quantizer; importance changes nothing.

    The value of largest magnitude (the first of equals) becomes code 0, -8 d.
    """
    g = x.reshape(len(x), -1, VALUES)
    d, q = ruled.signed(g, 8)
    return np.concatenate([layout.half_bytes(d), layout.join_nibbles(q, 16)], -1)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 18) -> (ceil(rows / 16), n_blocks, 288)."""
    return layout.strips(blocks, lambda b: [b[..., :2], layout.nibble_units(_codes(b))])


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 18) -> codes -8..7 and d."""
    codes = _codes(blocks).astype(np.int32) - 8
    return Ints(
        codes.reshape(len(blocks), -1), None, None, layout.halves(blocks[..., :2])[..., 0], None
    )


def _codes(blocks: U8) -> U8:
    return layout.split_nibbles(blocks[..., 2:], 16)
