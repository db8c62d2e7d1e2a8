"""What the formats share: array names, scales as stored, and the units that strips are made of.

A strip holds blocks of 16 rows. Four consecutive k of a row fill one 32-bit lane, so codes move
as little-endian words; a unit is one word of each of the 16 rows, 64 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

R = 16  # rows of a strip on every instruction set
_SLAB = 1 << 19  # bytes of blocks packed at once: temporaries stay in the cache and small


@dataclass(frozen=True, slots=True)
class Ints:
    """A matrix as the integers and float32 scales that the arithmetic contract is written in.

    weight = d * sub * code - dm * min, where `sub` and `mins` count as 1 if they are None.
    """

    codes: I32  # (rows, k), centred
    sub: I32 | None  # (rows, k / 16)
    mins: I32 | None  # (rows, k / 32)
    d: F32  # (rows, n_blocks)
    dm: F32 | None  # (rows, n_blocks); Q4_1 and Q5_1 add their minimum, so theirs is -m


class Format(Protocol):
    """What a module of `quant.formats` offers; the float types have no `ints`."""

    VALUES: int
    BYTES: int

    def decode(self, blocks: U8) -> F32:
        """(..., n_blocks, BYTES) -> (..., n_blocks * VALUES)."""

    def encode(self, x: F32, importance: F32 | None = None) -> U8:
        """(rows, k) -> (rows, n_blocks, BYTES)."""

    def pack(self, blocks: U8) -> U8:
        """(rows, n_blocks, BYTES) -> (ceil(rows / 16), n_blocks, 16 * BYTES)."""

    def ints(self, blocks: U8) -> Ints:
        """(rows, n_blocks, BYTES) -> its integers and scales."""


# ---- scales ---------------------------------------------------------------------------------


def halves(b: U8) -> F32:
    """(..., 2 n) bytes of n float16 -> (..., n) float32."""
    return np.ascontiguousarray(b).view("<f2").astype(np.float32)


def half_bytes(x: F32) -> U8:
    """(...) float32 -> (..., 2): float16, nearest even, overflow to infinity."""
    with np.errstate(over="ignore"):
        return x.astype("<f2")[..., None].view(np.uint8)


def scales6(b: U8) -> tuple[U8, U8]:
    """(..., 12) bytes of Q4_K and Q5_K -> scales and minima, (..., 8) each, values 0..63."""
    low, mid, top = b[..., :4], b[..., 4:8], b[..., 8:]
    sc = np.concatenate([low & 63, top & 15 | low >> 6 << 4], -1)
    mn = np.concatenate([mid & 63, top >> 4 | mid >> 6 << 4], -1)
    return sc, mn


def scales6_bytes(sc: U8, mn: U8) -> U8:
    """The inverse of `scales6`."""
    low = sc[..., :4] | sc[..., 4:] >> 4 << 6
    mid = mn[..., :4] | mn[..., 4:] >> 4 << 6
    return np.concatenate([low, mid, sc[..., 4:] & 15 | (mn[..., 4:] & 15) << 4], -1)


def decode_k(blocks: U8, codes: U8) -> F32:
    """Q4_K and Q5_K: blocks (..., n_blocks, bytes), codes (..., n_blocks, 256) -> (..., k)."""
    sc, mn = scales6(blocks[..., 4:16])
    q = codes.reshape(*codes.shape[:-1], 8, 32).astype(np.float32)
    with np.errstate(invalid="ignore"):
        d = halves(blocks[..., :2]) * sc.astype(np.float32)
        m = halves(blocks[..., 2:4]) * mn.astype(np.float32)
        x = d[..., None] * q - m[..., None]
    return x.reshape(*blocks.shape[:-2], -1)


def ints_k(blocks: U8, codes: U8) -> Ints:
    """Q4_K and Q5_K: (rows, n_blocks, bytes) and codes (rows, n_blocks, 256) -> integers."""
    sc, mn = (v.astype(np.int32).reshape(len(blocks), -1) for v in scales6(blocks[..., 4:16]))
    d, dmin = halves(blocks[..., :2])[..., 0], halves(blocks[..., 2:4])[..., 0]
    return Ints(codes.astype(np.int32).reshape(len(blocks), -1), sc.repeat(2, -1), mn, d, dmin)


# ---- codes ----------------------------------------------------------------------------------


def field(b: U8, at: int, n: int) -> U8:
    """The n bits from bit `at` of every byte."""
    return np.bitwise_and(np.right_shift(b, at), (1 << n) - 1)


def split_nibbles(qs: U8, run: int) -> U8:
    """(..., n) bytes -> (..., 2 n) codes: of each `run` bytes the low nibbles, then the high."""
    q = qs.reshape(*qs.shape[:-1], -1, 1, run)
    return np.concatenate([field(q, 0, 4), field(q, 4, 4)], -2).reshape(*qs.shape[:-1], -1)


def join_nibbles(codes: U8, run: int) -> U8:
    """The inverse of `split_nibbles`; only the low 4 bits of the codes count."""
    q = field(codes, 0, 4).reshape(*codes.shape[:-1], -1, 2, run)
    joined = np.bitwise_or(q[..., 0, :], np.left_shift(q[..., 1, :], 4))
    return joined.reshape(*codes.shape[:-1], -1)


# ---- strips ---------------------------------------------------------------------------------


def strips(blocks: U8, parts: Callable[[U8], list[U8]]) -> U8:
    """(rows, n_blocks, bytes) -> (ceil(rows / 16), n_blocks, 16 * bytes), rows padded with zeros.

    `parts` turns (n, n_blocks, 16, bytes) into pieces (n, n_blocks, ...) in their order.
    """
    rows, n_blocks, size = blocks.shape
    n = -(-rows // R)
    out = np.empty((n, n_blocks, R * size), np.uint8)
    step = max(1, _SLAB // max(1, R * n_blocks * size))
    for s in range(0, n, step):
        slab = blocks[s * R : (s + step) * R]
        if len(slab) % R:
            slab = np.pad(slab, ((0, -len(slab) % R), (0, 0), (0, 0)))
        b = np.ascontiguousarray(slab.reshape(-1, R, n_blocks, size).swapaxes(1, 2))
        pieces = [p.reshape(*b.shape[:2], -1) for p in parts(b)]
        np.concatenate(pieces, -1, out=out[s : s + step])
    return out


def planes(b: U8) -> U8:
    """(..., 16, n) -> (..., n, 16): byte j of the 16 rows side by side."""
    return np.ascontiguousarray(b.swapaxes(-1, -2))


def units(words: NDArray[np.uint32]) -> U8:
    """(..., 16, n) words -> (..., n, 64) bytes: word i of the 16 rows side by side."""
    return np.ascontiguousarray(words.swapaxes(-1, -2)).view(np.uint8)


def words(codes: U8) -> NDArray[np.uint32]:
    """(..., k) codes -> (..., k / 4): four consecutive k in one word."""
    return np.ascontiguousarray(codes).view("<u4")


def nibble_units(codes: U8) -> U8:
    """(..., 16, k) codes below 16 -> (..., k / 8, 64): a step of 4 k low, the next one high."""
    w = words(codes)
    return units(np.bitwise_or(w[..., ::2], np.left_shift(w[..., 1::2], 4)))


def bit_units(bits: U8) -> U8:
    """(..., 16, k) of 0 and 1 -> (..., k / 32, 64): bit s of byte j belongs to k = 4 s + j."""
    w = words(bits)
    w = w.reshape(*w.shape[:-1], -1, 8) << np.arange(8, dtype=np.uint32)
    return units(np.bitwise_or.reduce(w, -1))


def pair_units(pairs: U8) -> U8:
    """(..., 16, k) values below 4 -> (..., k / 16, 64): bits 2 s of byte j are k = 4 s + j."""
    w = words(pairs)
    w = w.reshape(*w.shape[:-1], -1, 4) << np.arange(0, 8, 2, dtype=np.uint32)
    return units(np.bitwise_or.reduce(w, -1))


def code5_units(codes: U8) -> U8:
    """(..., 16, k) codes below 32 -> (..., k / 32, 320): four nibble units, then their bit 4."""
    low = nibble_units(field(codes, 0, 4))
    low = low.reshape(*low.shape[:-2], -1, 256)
    return np.concatenate([low, bit_units(field(codes, 4, 1))], -1)


def value_strips(blocks: U8) -> U8:
    """Float types: (rows, k, size) -> (ceil(rows / 16), k, 16 * size), that is [k][16] values."""
    rows, k, size = blocks.shape
    v = np.ascontiguousarray(blocks).view(f"<u{size}")[..., 0]
    out = np.zeros((-(-rows // R), k, R), v.dtype)
    whole = rows // R
    out[:whole] = v[: whole * R].reshape(whole, R, k).swapaxes(1, 2)
    if rows % R:
        out[whole, :, : rows % R] = v[whole * R :].T
    return out.view(np.uint8)
