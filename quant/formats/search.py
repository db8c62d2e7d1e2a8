"""The search behind the K types: codes, sub-scales and scales with a small squared error.

Their quantizer is not fixed by a rule; what counts is sum w (x - decoded)^2, w the importance of
a column or 1. Each group first finds a scale (and minimum) of its own, then the super-block
turns: sub-scales to integers, codes to those, one least-squares step for the scales.
Arrays are (n, groups, values of a group) with the largest |x| of a super-block between 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from quant.formats.layout import F32, U8, half_bytes

_SLAB = 256  # super-blocks searched at once: the arrays of a step fit the second-level cache
_STRETCH = np.linspace(0.9, 1.45, 23, dtype=np.float32)  # of 1 / scale; above 1 clips extremes
_ROUNDS = 4
_TINY = np.float32(1e-30)
_HALF_MAX = np.float32(65504)


class Fit(NamedTuple):
    """Super-blocks in integers: weight = d * sc * q - dmin * mn (dmin, mn 0 without minima)."""

    d: F32  # (n,), a float16 value once the unit is applied
    dmin: F32  # (n,)
    sc: F32  # (n, groups)
    mn: F32  # (n, groups)
    q: F32  # (n, groups, values); without minima centred
    error: F32  # (n,)


Step = Callable[[F32, F32, F32], Fit]  # x, w, unit


def encode(
    x: F32,
    importance: F32 | None,
    group: int,
    fit: Step,
    assemble: Callable[[U8, U8, Fit], list[U8]],
    size: int,
) -> U8:
    """(rows, k) -> (rows, k / 256, size); `assemble` puts d, dmin and integers into file order."""
    per_row = x.shape[1] // 256
    flat = np.ascontiguousarray(x, np.float32).reshape(-1, 256 // group, group)
    columns = np.ones((per_row, *flat.shape[1:]), np.float32)
    if importance is not None:
        columns = importance.reshape(columns.shape)
    out = np.empty((len(flat), size), np.uint8)
    for at in range(0, len(flat), _SLAB):
        part = flat[at : at + _SLAB]
        w = columns[np.arange(at, at + len(part)) % per_row]
        top = np.abs(part).max((1, 2))
        unit = np.exp2(np.floor(np.log2(np.maximum(top, _TINY)))).astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            f = fit(part / unit[:, None, None], _relative(w), unit)
            pieces = assemble(half_bytes(f.d * unit), half_bytes(f.dmin * unit), f)
        np.concatenate(pieces, -1, out=out[at : at + _SLAB])
    return out.reshape(len(x), per_row, size)


def _relative(w: F32) -> F32:
    """Importance over its mean in the block; what counts for nothing is still fitted a little."""
    mean = w.mean((1, 2), keepdims=True)
    return np.where(mean > 0, np.maximum(_ratio(w, mean), np.float32(1e-6)), np.float32(1))


def with_minima(top: int) -> Step:
    """Codes 0..top, sub-scales and minima 0..63."""

    def fit(x: F32, w: F32, unit: F32) -> Fit:
        s, m = _range_groups(x, w, top)
        d, dmin = s.max(-1) / np.float32(63), m.max(-1) / np.float32(63)
        best = _minima_codes(x, w, _half(d, unit), _half(dmin, unit), s, m, top)
        for _ in range(_ROUNDS):
            d, dmin = _two_scales(x, w, best)
            s, m = best.sc * best.d[:, None], best.mn * best.dmin[:, None]
            new = _minima_codes(x, w, _half(d, unit), _half(dmin, unit), s, m, top)
            best = _better(best, new)
        return best

    return fit


def centred(low: int, top: int) -> Step:
    """Codes low..top around 0, sub-scales -128..127, no minima."""

    def fit(x: F32, w: F32, unit: F32) -> Fit:
        s = _centred_groups(x, w, low, top)
        d = np.abs(s).max(-1) / np.float32(127)
        best = _centred_codes(x, w, _half(d, unit), s, low, top)
        for _ in range(_ROUNDS):
            a = best.sc[..., None] * best.q
            d = _ratio((w * a * x).sum((1, 2)), (w * a * a).sum((1, 2)))
            new = _centred_codes(x, w, _half(d, unit), best.sc * best.d[:, None], low, top)
            best = _better(best, new)
        return best

    return fit


# ---- one group: a scale, a minimum -------------------------------------------------------------


def _range_groups(x: F32, w: F32, top: int) -> tuple[F32, F32]:
    low, high = np.minimum(x.min(-1), 0), x.max(-1)
    inverse = _ratio(np.float32(top), high - low)
    best_s, best_m = np.zeros_like(low), np.zeros_like(low)
    best = np.full_like(low, np.inf)
    sw, sx = w.sum(-1), (w * x).sum(-1)

    def solve(q: F32) -> None:
        nonlocal best, best_s, best_m
        wq = w * q
        sq, sqq, sxq = wq.sum(-1), (wq * q).sum(-1), (wq * x).sum(-1)
        det = sw * sqq - sq * sq
        s, m = _ratio(sw * sxq - sq * sx, det), _ratio(sq * sxq - sqq * sx, det)
        alone = (m < 0) | (det <= 0)  # the minimum cannot be added: the scale does it all
        s, m = np.where(alone, _ratio(sxq, sqq), s), np.where(alone, np.float32(0), m)
        r = x - s[..., None] * q + m[..., None]
        error = (w * r * r).sum(-1)
        win = (error < best) & (s >= 0)
        best, best_s = np.where(win, error, best), np.where(win, s, best_s)
        best_m = np.where(win, m, best_m)

    for stretch in _STRETCH:
        solve(_codes((x - low[..., None]) * (inverse * stretch)[..., None], 0, top))
    for _ in range(2):
        solve(_codes((x + best_m[..., None]) * _ratio(np.float32(1), best_s)[..., None], 0, top))
    return best_s, best_m


def _centred_groups(x: F32, w: F32, low: int, top: int) -> F32:
    at = np.abs(x).argmax(-1)[..., None]
    extreme = np.take_along_axis(x, at, -1)[..., 0]
    inverse = _ratio(np.float32(low), extreme)  # the extreme value takes the longer side
    best_s, best = np.zeros_like(extreme), np.full_like(extreme, np.inf)
    for stretch in _STRETCH:
        q = _codes(x * (inverse * stretch)[..., None], low, top)
        wq = w * q
        s = _ratio((wq * x).sum(-1), (wq * q).sum(-1))
        r = x - s[..., None] * q
        error = (w * r * r).sum(-1)
        win = error < best
        best, best_s = np.where(win, error, best), np.where(win, s, best_s)
    return best_s


# ---- a super-block: integers for its groups ----------------------------------------------------


def _minima_codes(x: F32, w: F32, d: F32, dmin: F32, s: F32, m: F32, top: int) -> Fit:
    """Sub-scales next to s / d, for each the best minimum, and codes; groups are independent."""
    base = np.rint(s * _ratio(np.float32(1), d)[:, None])
    inverse_min = _ratio(np.float32(1), dmin)[:, None]
    sw = w.sum(-1)
    fits = []
    for near in (-1, 0, 1):
        sc = np.clip(base + np.float32(near), 0, 63)
        step = sc * d[:, None]
        q = _codes((x + m[..., None]) * _ratio(np.float32(1), step)[..., None], 0, top)
        ideal = _ratio((w * (step[..., None] * q - x)).sum(-1), sw)
        mn = np.clip(np.rint(ideal * inverse_min), 0, 63)
        shift = (mn * dmin[:, None])[..., None]
        q = _codes((x + shift) * _ratio(np.float32(1), step)[..., None], 0, top)
        r = x + shift - step[..., None] * q
        fits.append((sc, mn, q, (w * r * r).sum(-1)))
    return _pick(d, dmin, fits)


def _centred_codes(x: F32, w: F32, d: F32, s: F32, low: int, top: int) -> Fit:
    base = np.rint(s * _ratio(np.float32(1), d)[:, None])
    fits = []
    for near in (-1, 0, 1):
        sc = np.clip(base + np.float32(near), -128, 127)
        step = (sc * d[:, None])[..., None]
        q = _codes(x * _ratio(np.float32(1), step), low, top)
        r = x - step * q
        fits.append((sc, np.zeros_like(sc), q, (w * r * r).sum(-1)))
    return _pick(d, np.zeros_like(d), fits)


def _pick(d: F32, dmin: F32, fits: list[tuple[F32, F32, F32, F32]]) -> Fit:
    sc, mn, q, error = fits[0]
    for sc2, mn2, q2, error2 in fits[1:]:
        win = error2 < error
        sc, mn = np.where(win, sc2, sc), np.where(win, mn2, mn)
        q, error = np.where(win[..., None], q2, q), np.where(win, error2, error)
    return Fit(d, dmin, sc, mn, q, error.sum(-1))


def _two_scales(x: F32, w: F32, f: Fit) -> tuple[F32, F32]:
    """Least squares for d and dmin of every super-block, its integers kept."""
    a, b = f.sc[..., None] * f.q, np.broadcast_to(-f.mn[..., None], x.shape)
    total = np.float64
    aa, ab, bb = ((w * u * v).sum((1, 2), total) for u, v in ((a, a), (a, b), (b, b)))
    ax, bx = (w * a * x).sum((1, 2), total), (w * b * x).sum((1, 2), total)
    det = aa * bb - ab * ab
    ok = det > 1e-9 * aa * bb
    safe = np.where(ok, det, 1)
    d = np.where(ok, (bb * ax - ab * bx) / safe, f.d)
    dmin = np.where(ok, (aa * bx - ab * ax) / safe, f.dmin)
    return np.maximum(d, 0).astype(np.float32), np.maximum(dmin, 0).astype(np.float32)


def _better(old: Fit, new: Fit) -> Fit:
    win = new.error < old.error
    pick = [
        np.where(win.reshape(-1, *(1,) * (o.ndim - 1)), n, o) for o, n in zip(old, new, strict=True)
    ]
    return Fit(*pick)


# ---- arithmetic ----------------------------------------------------------------------------------


def _codes(x: F32, low: int, top: int) -> F32:
    return np.clip(np.rint(x), low, top)


def _ratio(a: F32 | np.float32, b: F32) -> F32:
    """a / b, 0 where b is too small to divide by."""
    ok = np.abs(b) > _TINY
    return np.where(ok, a / np.where(ok, b, np.float32(1)), np.float32(0))


def _half(d: F32, unit: F32) -> F32:
    """The value nearest to d that float16 holds at this unit."""
    stored: F32 = np.minimum(d * unit, _HALF_MAX).astype(np.float16).astype(np.float32)
    return stored / unit
