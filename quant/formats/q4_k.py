"""Q4_K: 256 codes of 4 bits; 8 sub-scales and minima of 6 bits under two half-precision scales.

Block, 144 bytes:  d f16 at 0 | dmin f16 at 2 | scales u8[12] at 4 | qs u8[128] at 16
                   weight[i] = (d * sc[i / 32]) * code[i] - (dmin * mn[i / 32])
                   codes 64 g + i and 64 g + 32 + i: low and high nibble of qs[32 g + i], i < 32
                   sc, mn: `layout.scales6`
Strip, 16 rows:    d f16[16] | dmin f16[16] | 12 planes of 16 bytes, the scales as stored
                   | 32 nibble units of 8 k
Checked: tests/golden/quant/test_formats.py.
"""

from __future__ import annotations

import numpy as np

from quant.formats import layout, search
from quant.formats.layout import F32, U8, Ints

VALUES, BYTES = 256, 144


def decode(blocks: U8) -> F32:
    """(..., n_blocks, 144) -> (..., n_blocks * 256)."""
    return layout.decode_k(blocks, _codes(blocks))


def encode(x: F32, importance: F32 | None = None) -> U8:
    """(rows, k) -> (rows, k / 256, 144) by search; importance (k,) weighs the columns."""
    return search.encode(x, importance, 32, search.with_minima(15), _assemble, BYTES)


def pack(blocks: U8) -> U8:
    """(rows, n_blocks, 144) -> (ceil(rows / 16), n_blocks, 2304)."""
    return layout.strips(
        blocks,
        lambda b: [
            b[..., :2],
            b[..., 2:4],
            layout.planes(b[..., 4:16]),
            layout.nibble_units(_codes(b)),
        ],
    )


def ints(blocks: U8) -> Ints:
    """(rows, n_blocks, 144) -> codes 0..15, sub-scales and minima 0..63, d and dmin."""
    return layout.ints_k(blocks, _codes(blocks))


def _assemble(d: U8, dmin: U8, f: search.Fit) -> list[U8]:
    scales = layout.scales6_bytes(f.sc.astype(np.uint8), f.mn.astype(np.uint8))
    q = f.q.astype(np.uint8).reshape(-1, VALUES)
    return [d, dmin, scales, layout.join_nibbles(q, 32)]


def _codes(blocks: U8) -> U8:
    return layout.split_nibbles(blocks[..., 16:], 32)
