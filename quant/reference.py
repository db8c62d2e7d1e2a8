"""The arithmetic contract of the matmul in numpy: the bits that every kernel must give.

order      per (row, token) one float32 accumulator, k ascending; integers are exact within 32
           values, sub-scales and centring included
small      acc = fma(f32(i), dw * dx, acc), then for a minimum acc = fma(-dm, xs, acc)
super      per block t = fma(f32(i), dx, t) and u = fma(f32(m), xs, u) over its groups from 0,
           then acc = fma(t, d, acc), acc = fma(-dmin, u, acc)
float      weights widened exactly, activations as they are, acc = fma(w, x, acc) per k
NaN        only its being NaN counts, never its bits
Slow and simple; `matmul_exact` is the float64 truth beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quant.errors import QuantError
from quant.formats.layout import F32, I32, U8, Ints
from quant.types import Type

F64 = NDArray[np.float64]

LIMITS = {"int8": 127, "int16": 16319}  # 16319 = 127 * 128 + 63: two int8 planes hold it
SMALLEST_SCALE = np.float32(2.0**-126)  # below it a scale is subnormal and codes would overflow


class Activations(NamedTuple):
    """Activations in a8 or a16: what belongs to the contract, in no particular memory layout."""

    codes: I32  # (n, k), within the limit
    dx: F32  # (n, k / 32)
    xs16: F32  # (n, k / 16): f32(sum of 16 codes) * dx
    xs: F32  # (n, k / 32): f32(sum of 32 codes) * dx


def fma32(a: F32, b: F32, c: F32) -> F32:
    """a * b + c with one rounding to float32; shapes broadcast.

    The product of two float32 is exact in float64. The sum is rounded to odd (its error, exact
    by two-sum, tells whether an even last bit must move one place), and 53 bits rounded to odd
    round to 24 bits, or fewer for subnormals, as the exact sum would.
    """
    with np.errstate(all="ignore"):
        p, c64 = np.broadcast_arrays(
            np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
        )
        s = np.asarray(p + c64)
        back = s - p
        error = (p - (s - back)) + (c64 - back)
        bits = s.view(np.int64)
        move = (error != 0) & (bits & 1 == 0) & np.isfinite(s)
        away = (error > 0) == (s > 0)
        odd = bits + np.where(move, np.where(away, 1, -1), 0)
        return odd.view(np.float64).astype(np.float32)


def quantize_activations(x: F32, limit: int) -> Activations:
    """(n, k) float32, k % 32 == 0 -> codes within +-limit, one scale per 32 values.

    s = amax / limit; a scale below 2^-126 (zero, subnormal) becomes 0 with codes 0; else
    q = round_even(y / s). A group with NaN or infinity has codes 0 under s = NaN or infinity, so
    that its products are NaN and show in the logits.
    """
    n, k = x.shape
    g = np.asarray(x, np.float32).reshape(n, k // 32, 32)
    with np.errstate(all="ignore"):
        s = np.abs(g).max(-1) / np.float32(limit)
        s = np.where((s >= SMALLEST_SCALE) | np.isnan(s), s, np.float32(0))
        q = np.rint(g / s[..., None])
        q = np.where((s[..., None] > 0) & np.isfinite(s[..., None]), q, np.float32(0)).astype(
            np.int32
        )
        xs16 = q.reshape(n, -1, 16).sum(-1).astype(np.float32) * s.repeat(2, -1)
        xs = q.sum(-1).astype(np.float32) * s
    return Activations(q.reshape(n, k), s, xs16, xs)


def matmul_bits(t: Type, blocks: U8, x: F32, precision: str = "int8") -> F32:
    """(rows, n_blocks, bytes) weights, (n, k) activations -> (n, rows): the contract's bits.

    precision is "int8" (a8) or "int16" (a16); float types ignore it.
    """
    return _bits(t, blocks, x, precision, pairs=False)


def dot_bits(t: Type, blocks: U8, x: F32, precision: str = "int8") -> F32:
    """As `matmul_bits` for pairs: (n, n_blocks, bytes), (n, k) -> (n,), row i times row i."""
    return _bits(t, blocks, x, precision, pairs=True)


def matmul_exact(t: Type, blocks: U8, x: F32) -> F64:
    """(rows, n_blocks, bytes), (n, k) -> (n, rows): decoded weights, float64 arithmetic."""
    dense: F64 = t.format.decode(blocks).astype(np.float64)
    with np.errstate(all="ignore"):
        out: F64 = np.asarray(x, np.float64) @ dense.T
    return out


def _bits(t: Type, blocks: U8, x: F32, precision: str, *, pairs: bool) -> F32:
    if precision not in LIMITS:
        raise QuantError(
            f"precision {precision!r} is not known", expected=f"one of {', '.join(LIMITS)}"
        )

    def column(v: F32) -> F32:
        """(n, m) -> m arrays that broadcast against the rows of the weights."""
        turned = np.ascontiguousarray(v.T)
        return turned if pairs else turned[..., None]

    if t.kind == "float":
        w = np.ascontiguousarray(t.format.decode(blocks).T)
        return _float_bits(w, column(np.asarray(x, np.float32)))
    ints, a = t.format.ints(blocks), quantize_activations(x, LIMITS[precision])
    i, dx, xs = _group_sums(ints, a, pairs), column(a.dx), column(a.xs)
    return _small_bits(ints, i, dx, xs) if t.kind == "small" else _super_bits(ints, i, dx, xs)


def _group_sums(w: Ints, a: Activations, pairs: bool) -> F32:
    """f32(i) for every group of 32: (k / 32, n, rows), or (k / 32, n) for pairs."""
    codes = w.codes if w.sub is None else w.codes * w.sub.repeat(16, -1)
    # float64 holds these integers exactly, so the order inside a group cannot matter.
    left = a.codes.reshape(len(a.codes), -1, 32).transpose(1, 0, 2).astype(np.float64)
    right = codes.reshape(len(codes), -1, 32).transpose(1, 0, 2).astype(np.float64)
    i: F64 = (left * right).sum(-1) if pairs else left @ right.transpose(0, 2, 1)
    assert np.abs(i).max(initial=0) < 2**31
    return i.astype(np.float32)


def _float_bits(w: F32, x: F32) -> F32:
    acc = np.zeros(np.broadcast_shapes(w.shape[1:], x.shape[1:]), np.float32)
    for i in range(len(w)):
        acc = fma32(w[i], x[i], acc)
    return acc


def _small_bits(w: Ints, i: F32, dx: F32, xs: F32) -> F32:
    acc = np.zeros(i.shape[1:], np.float32)
    for g in range(len(i)):
        with np.errstate(all="ignore"):
            scale = w.d[:, g] * dx[g]
        acc = fma32(i[g], scale, acc)
        if w.dm is not None:
            acc = fma32(-w.dm[:, g], xs[g], acc)
    return acc


def _super_bits(w: Ints, i: F32, dx: F32, xs: F32) -> F32:
    acc = np.zeros(i.shape[1:], np.float32)
    groups = len(i) // w.d.shape[1]
    for b in range(w.d.shape[1]):
        t, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(groups * b, groups * (b + 1)):
            t = fma32(i[g], dx[g], t)
            if w.mins is not None:
                u = fma32(w.mins[:, g].astype(np.float32), xs[g], u)
        acc = fma32(t, w.d[:, b], acc)
        if w.dm is not None:
            acc = fma32(-w.dm[:, b], u, acc)
    return acc
