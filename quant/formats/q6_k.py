"""Q6_K: 256 codes of 6 bits; 16 sub-scales of 8 bits under one half-precision scale.

Block, 210 bytes:  ql u8[128] at 0 | qh u8[64] at 128 | scales i8[16] at 192 | d f16 at 208
                   weight[i] = (d * scales[i / 16]) * (code[i] - 32)
                   half h of the block, m < 32, n < 4: low 4 bits of code[128 h + 32 n + m] are
                   nibble n / 2 of ql[64 h + 32 (n % 2) + m], upper 2 are bits 2 n of qh[32 h + m]
Strip, 16 rows:    d f16[16] | 16 planes of 16 bytes, the scales
                   | 16 times: 2 nibble units of 8 k, 1 unit of their upper 2 bits
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, search
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 256, 210
_SHIFTS = np.arange(0, 8, 2, dtype=np.uint8)[:, None]


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 210) -> (..., n_blocks * 256)."""
    q = _codes(blocks).reshape(*blocks.shape[:-1], 16, 16).astype(np.float32) - np.float32(32)
    with np.errstate(invalid="ignore"):
        x = (layout.halves(blocks[..., 208:]) * _scales(blocks).astype(np.float32))[..., None] * q
    return x.reshape(*blocks.shape[:-2], -1)


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 256, 210) by search; importance (k,) weighs the columns."""
    return search.encode(x, importance, 16, search.centred(-32, 31), _assemble, BYTES)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 210) -> (ceil(rows / 16), n_blocks, 3360)."""
    return layout.strips(blocks, _parts)


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 210) -> codes -32..31, sub-scales -128..127 and d."""
    rows = len(blocks)
    codes = (_codes(blocks).astype(np.int32) - 32).reshape(rows, -1)
    sub = _scales(blocks).astype(np.int32).reshape(rows, -1)
    return Ints(codes, sub, None, layout.halves(blocks[..., 208:])[..., 0], None)


def _parts(b: U8) -> list[U8]:
    codes = _codes(b)
    low = layout.nibble_units(layout.field(codes, 0, 4))
    low = low.reshape(*low.shape[:-2], 16, 128)
    return [
        b[..., 208:],
        layout.planes(b[..., 192:208]),
        np.concatenate([low, layout.pair_units(layout.field(codes, 4, 2))], -1),
    ]


def _scales(blocks: U8) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return blocks[..., 192:208].view(np.int8)


def _assemble(d: U8, _: U8, f: search.Fit) -> list[U8]:
    q = (f.q + np.float32(32)).astype(np.uint8).reshape(-1, VALUES)
    high = layout.field(q, 4, 2).reshape(-1, 2, 4, 32)
    high = np.bitwise_or.reduce(np.left_shift(high, _SHIFTS), 2).reshape(-1, 64)
    scales = f.sc.astype(np.int8).view(np.uint8)
    return [layout.join_nibbles(q, 64), high, scales, d]


def _codes(blocks: U8) -> U8:
    lead = blocks.shape[:-1]
    low = layout.split_nibbles(blocks[..., :128], 64)
    high = blocks[..., 128:192].reshape(*lead, 2, 1, 32) >> _SHIFTS & 3
    codes: U8 = np.bitwise_or(low, np.left_shift(high.reshape(*lead, 256), 4))
    return codes
