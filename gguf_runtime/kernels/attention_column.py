"""The running softmax of one column, and the merge of its spans: helpers of the attention kernels.

State of the columns of an item, STATE_BYTES: m of all, then l of all, then the ratios that a block
gives; n = whole strips of out. The order of every operation is stated in attention.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pages import POSITIONS
from gguf_runtime.kernels.lanes import f32, fold_bits, strips
from quant.reference import fma32
from quant.simd import LANES, Addr, F, macro, v
from quant.simd.elementary import EXP, LN2_HIGH, LN2_LOW, LOG2E, MAGIC, exp_bits
from quant.simd.elementary import LOWEST as LOWEST_EXP

if TYPE_CHECKING:
    from quant.simd.words import Words


F32 = NDArray[np.float32]

COLUMNS = 96  # most columns of an item
SUMS = 4 * (-(-COLUMNS // LANES) * LANES)  # bytes from m to l
RATIOS = 2 * SUMS
STATE_BYTES = 3 * SUMS
LOWEST = f32(float("-inf"))


@macro
def visible(v: Words, x: F, base: int, lo: int, hi: int) -> F:
    """Lanes base .. base + 15 of a block: x where lo <= lane < hi, else -inf."""
    lane = v.add_w(v.iota_w(), v.splat_w(base))
    low = v.splat_f(float("-inf"))
    return v.select(v.lt_w(lane, v.splat_w(lo)), low, v.select(v.lt_w(lane, v.splat_w(hi)), x, low))


def decay(v: Words, x: F) -> F:
    """e^x for x <= 0 or NaN, the bits of `exp`, in three quarters of its operations.

    The power of two is made from the rounded exponent by one shift, 2^65 too large, so that it is
    an ordinary number also where the result is subnormal; every product but the last is exact.
    Where e^x is 0, it is so by select: x86 takes a slow path for tiny products.
    """
    none, zero = v.lt(x, v.splat_f(LOWEST_EXP)), v.zero_f()
    x = v.select(none, zero, x)
    magic = v.splat_f(MAGIC + (127 + 65))
    t = v.fma(x, v.splat_f(LOG2E), magic)
    n = v.sub(t, magic)
    r = v.fma(n, v.splat_f(-LN2_HIGH), x)
    r = v.fma(n, v.splat_f(-LN2_LOW), r)
    p = v.splat_f(EXP[0])
    for c in EXP[1:]:
        p = v.fma(p, r, v.splat_f(c))
    p = v.add(v.fma(v.mul(r, r), p, r), v.splat_f(1.0))
    power = v.f_of_w(v.shl_w(v.w_of_f(t), 23))
    return v.select(none, zero, v.mul(v.mul(p, power), v.splat_f(2.0**-65)))


@macro
def exp_scalar(v: Words, x: float) -> float:
    """e^x of a scalar."""
    return v.lane_f(decay(v, v.splat_f(x)), 0)


def low(at: Addr, start: int, window: int) -> int:
    """The first position of the block at `start` that the column with its position at `at` sees."""
    return max(v.ld_i64(at) - start + 1 - window, 0) if window > 0 else 0


def high(at: Addr, start: int) -> int:
    """The position after the last that it sees; 0 or less if the block is hidden."""
    return min(v.ld_i64(at) - start + 1, 64)


def soften(
    s: Addr, state: Addr, at: Addr, start: int, window: int, n: int, o: Addr, size: int
) -> None:
    """Scores [n][64] of a block -> probabilities; updates the state and rescales rows of out.

    In passes over all columns, so that the latency of one hides behind the others: the largest score
    of each, what that makes of all states, the rows of out, the probabilities and their sums.
    """
    # The last column is the first to lose sight of what is old, the first of what is new.
    whole = low(at + 8 * (n - 1), start, window) == 0 and high(at, start) == POSITIONS
    for c in range(n):
        lo, hi = 0, POSITIONS
        if not whole:
            lo, hi = low(at + 8 * c, start, window), high(at + 8 * c, start)
        v.st_f32(state + (RATIOS + 4 * c), largest(s + 256 * c, lo, hi))
    for i in range(0, 4 * n, 64):
        update(state + i)
    for c in range(n):
        r = v.ld_f32(state + (RATIOS + 4 * c))
        if r != f32(1):
            for i in range(o + c * size, o + (c + 1) * size, 64):
                v.st_f(i, v.mul(v.ld_f(i), v.splat_f(r)))
    c = 0
    if whole:
        while c + together() <= n:
            several(s + 256 * c, state + 4 * c)
            c += together()
    while c < n:
        if whole or low(at + 8 * c, start, window) < high(at + 8 * c, start):
            one(s + 256 * c, state + 4 * c)
        else:
            v.st_f32(state + (RATIOS + 4 * c), f32(0))
        c += 1
    for i in range(0, 4 * n, 64):
        add_sums(state + i)


def largest(s: Addr, lo: int, hi: int) -> float:
    """The largest visible score of a column, -inf if there is none; hidden ones become -inf."""
    if lo >= hi:
        return LOWEST
    x0, x1, x2, x3 = v.ld_f(s), v.ld_f(s + 64), v.ld_f(s + 128), v.ld_f(s + 192)
    if lo > 0 or hi < POSITIONS:
        x0, x1 = visible(x0, 0, lo, hi), visible(x1, 16, lo, hi)
        x2, x3 = visible(x2, 32, lo, hi), visible(x3, 48, lo, hi)
        v.st_f(s, x0)
        v.st_f(s + 64, x1)
        v.st_f(s + 128, x2)
        v.st_f(s + 192, x3)
    return v.hmax(v.max(v.max(x0, x1), v.max(x2, x3)))


@macro
def update(v: Words, state: Addr) -> None:
    """16 columns: their largest scores -> new m, l r, and r in place of the scores."""
    old = v.ld_f(state)
    new = v.max(old, v.ld_f(state + RATIOS))
    r = v.select(v.eq(new, old), v.splat_f(1.0), decay(v, v.sub(old, new)))
    v.st_f(state, new)
    v.st_f(state + SUMS, v.mul(v.ld_f(state + SUMS), r))
    v.st_f(state + RATIOS, r)


@macro
def add_sums(v: Words, state: Addr) -> None:
    """16 columns: l + the block's sum, which stands in place of the ratio."""
    v.st_f(state + SUMS, v.add(v.ld_f(state + SUMS), v.ld_f(state + RATIOS)))


@macro
def together(v: Words) -> int:
    """Columns whose probabilities are made at once, as registers allow."""
    return 2 if v.isa.startswith("avx512") else 1


@macro
def several(v: Words, s: Addr, state: Addr) -> None:
    """`together` columns: scores -> probabilities."""
    probabilities(v, s, state, together.fn(v))


@macro
def one(v: Words, s: Addr, state: Addr) -> None:
    """One column: scores -> probabilities."""
    probabilities(v, s, state, 1)


def probabilities(v: Words, s: Addr, state: Addr, n: int) -> None:
    """Scores of n columns -> exp(score - m), in place; their sums in place of the ratios."""
    top = [v.bc_f(state + 4 * c) for c in range(n)]
    x = [decay(v, v.sub(v.ld_f(s + 64 * k), top[k // 4])) for k in range(4 * n)]
    for k in range(4 * n):
        v.st_f(s + 64 * k, x[k])
    for c in range(n):
        a = x[4 * c : 4 * c + 4]
        total = v.hsum(v.add(v.add(a[0], a[1]), v.add(a[2], a[3])))
        v.st_f32(state + (RATIOS + 4 * c), total)


def merge_span(to: Addr, gap: int, o: Addr, m: float, l: float, x: Addr, n: int) -> None:
    """Merge a span's m, l and n values at x into M at `to`, L `gap` bytes further, and O at o."""
    a = v.ld_f32(to)
    new = a if a > m else m
    r, s = exp_scalar(f32(a - new)), exp_scalar(f32(m - new))
    v.st_f32(to, new)
    v.st_f32(to + gap, f32(f32(v.ld_f32(to + gap) * r) + f32(l * s)))
    for i in range(0, 4 * n, 64):
        old, part = v.mul(v.ld_f(o + i), v.splat_f(r)), v.mul(v.ld_f(x + i), v.splat_f(s))
        v.st_f(o + i, v.add(old, part))


def copy_span(to: Addr, gap: int, o: Addr, m: float, l: float, x: Addr, n: int) -> None:
    """A span's m, l and n values as they are."""
    v.st_f32(to, m)
    v.st_f32(to + gap, l)
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
