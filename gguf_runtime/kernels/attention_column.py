"""The running softmax of one column, and the merge of its spans: helpers of the attention kernels.

State of a column: m and l, two float32 side by side, and n = whole strips of out. The order of every
operation is stated in attention.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pages import POSITIONS
from gguf_runtime.kernels.lanes import f32, fold_bits, strips
from quant.reference import fma32
from quant.simd import LANES, Addr, F, macro, v
from quant.simd.elementary import exp, exp_bits

if TYPE_CHECKING:
    from quant.simd.words import Words


F32 = NDArray[np.float32]


@macro
def visible(v: Words, x: F, base: int, lo: int, hi: int) -> F:
    """Lanes base .. base + 15 of a block: x where lo <= lane < hi, else -inf."""
    lane = v.add_w(v.iota_w(), v.splat_w(base))
    low = v.splat_f(float("-inf"))
    return v.select(v.lt_w(lane, v.splat_w(lo)), low, v.select(v.lt_w(lane, v.splat_w(hi)), x, low))


@macro
def exp_less(v: Words, x: F, m: float) -> F:
    """e^(x - m)."""
    return exp(v, v.sub(x, v.splat_f(m)))


@macro
def exp_scalar(v: Words, x: float) -> float:
    """e^x of a scalar."""
    return v.lane_f(exp(v, v.splat_f(x)), 0)


def low(at: Addr, start: int, window: int) -> int:
    """The first position of the block at `start` that the column with its position at `at` sees."""
    return max(v.ld_i64(at) - start + 1 - window, 0) if window > 0 else 0


def high(at: Addr, start: int) -> int:
    """The position after the last that it sees; 0 or less if the block is hidden."""
    return min(v.ld_i64(at) - start + 1, 64)


def soften(s: Addr, state: Addr, lo: int, hi: int, o: Addr, n: int) -> None:
    """Scores of one column's block -> probabilities; updates (m, l) and rescales n values of out."""
    x0, x1, x2, x3 = v.ld_f(s), v.ld_f(s + 64), v.ld_f(s + 128), v.ld_f(s + 192)
    if lo > 0 or hi < POSITIONS:
        x0, x1 = visible(x0, 0, lo, hi), visible(x1, 16, lo, hi)
        x2, x3 = visible(x2, 32, lo, hi), visible(x3, 48, lo, hi)
    top = v.hmax(v.max(v.max(x0, x1), v.max(x2, x3)))
    m, l = v.ld_f32(state), v.ld_f32(state + 4)
    new = m if m > top else top
    if new != m:
        r = exp_scalar(f32(m - new))
        l = f32(l * r)
        for i in range(0, 4 * n, 64):
            v.st_f(o + i, v.mul(v.ld_f(o + i), v.splat_f(r)))
    x0, x1, x2, x3 = exp_less(x0, new), exp_less(x1, new), exp_less(x2, new), exp_less(x3, new)
    v.st_f(s, x0)
    v.st_f(s + 64, x1)
    v.st_f(s + 128, x2)
    v.st_f(s + 192, x3)
    v.st_f32(state, new)
    v.st_f32(state + 4, f32(l + v.hsum(v.add(v.add(x0, x1), v.add(x2, x3)))))


def merge_span(to: Addr, o: Addr, state: Addr, x: Addr, n: int) -> None:
    """Merge a span's (m, l) at state and n values at x into (M, L) at `to` and O at o."""
    a, b = v.ld_f32(to), v.ld_f32(state)
    new = a if a > b else b
    r, s = exp_scalar(f32(a - new)), exp_scalar(f32(b - new))
    v.st_f32(to, new)
    v.st_f32(to + 4, f32(f32(v.ld_f32(to + 4) * r) + f32(v.ld_f32(state + 4) * s)))
    for i in range(0, 4 * n, 64):
        old, part = v.mul(v.ld_f(o + i), v.splat_f(r)), v.mul(v.ld_f(x + i), v.splat_f(s))
        v.st_f(o + i, v.add(old, part))


def copy_span(to: Addr, o: Addr, state: Addr, x: Addr, n: int) -> None:
    """A span's state and n values as they are."""
    v.st_i64(to, v.ld_i64(state))
    for i in range(0, 4 * n, 64):
        v.st_f(o + i, v.ld_f(x + i))


def write_out(out: Addr, o: Addr, l: float, dim: int) -> None:
    """Out = o / l for dim values."""
    for i in range(0, dim - LANES + 1, LANES):
        v.st_f(out + 4 * i, v.div(v.ld_f(o + 4 * i), v.splat_f(l)))
    left = dim % LANES
    if left > 0:
        i = dim - left
        v.st_f_tail(out + 4 * i, v.div(v.ld_f(o + 4 * i), v.splat_f(l)), left)


# ---- the same in numpy -------------------------------------------------------------------------


def span_bits(q: F32, k: F32, x: F32, first: int, end: int) -> tuple[F32, F32, F32]:
    """q (h, dk), k (h, P, dk), x (h, P, dv): positions first .. end - 1 of one span -> m, l, out."""
    m, l = np.full(len(q), -np.inf, np.float32), np.zeros(len(q), np.float32)
    out = np.zeros((len(q), x.shape[2]), np.float32)
    for start in range(first // POSITIONS * POSITIONS, end, POSITIONS):
        lo, hi = max(first - start, 0), min(end - start, POSITIONS)
        s = np.full((len(q), POSITIONS), -np.inf, np.float32)
        acc = np.zeros((len(q), hi - lo), np.float32)
        for d in range(q.shape[1]):
            acc = fma32(k[:, start + lo : start + hi, d], q[:, d, None], acc)
        s[:, lo:hi] = acc
        top = s.max(-1)
        new = np.where(m > top, m, top)
        same = new == m
        r = np.where(same, np.float32(1), exp_bits(m - new))
        p = exp_bits(s - new[:, None])
        p4 = strips(p)
        total = fold_bits((p4[:, 0] + p4[:, 1]) + (p4[:, 2] + p4[:, 3]))
        m, l, out = new, l * r + total, out * r[:, None]
        for t in range(lo, hi):
            out = fma32(p[:, t, None], x[:, start + t], out)
    return m, l, out


def merge_bits(a: tuple[F32, F32, F32], b: tuple[F32, F32, F32]) -> tuple[F32, F32, F32]:
    """Two spans, the earlier first, as one."""
    new = np.where(a[0] > b[0], a[0], b[0])
    r, s = exp_bits(a[0] - new), exp_bits(b[0] - new)
    return new, a[1] * r + b[1] * s, a[2] * r[:, None] + b[2] * s[:, None]
