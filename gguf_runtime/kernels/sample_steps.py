"""The steps of the sampling chain: helpers of `sample.pick`, whose docstring has the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf_runtime.kernels.lanes import f32
from gguf_runtime.kernels.sample_bits import CHUNK, RECORD
from gguf_runtime.kernels.select import key_logit, key_of, select_largest, sort_falling
from quant.simd import LANES, Addr, F, macro, v
from quant.simd.elementary import exp

if TYPE_CHECKING:
    from quant.simd.words import Words

(
    ROW, TEMPERATURE, TOP_K, TOP_P, MIN_P, REPEAT, FREQUENCY, PRESENCE, SEED, SAMPLE, POSITION,
    IDS, COUNTS, N_IDS, ID, STATE,
) = range(0, 8 * len(RECORD), 8)  # fmt: skip
INFINITY = float("inf")


@macro
def load_low(v: Words, a: Addr, n: int) -> F:
    """The first n logits, -inf in the other lanes."""
    return v.select(v.lt_w(v.iota_w(), v.splat_w(n)), v.ld_f_tail(a, n), v.splat_f(float("-inf")))


def chunk_top(a: Addr, n: int) -> float:
    """Largest of n logits."""
    top = v.splat_f(f32(-INFINITY))
    for i in range(0, n - LANES + 1, LANES):
        top = v.max(v.ld_f(a + 4 * i), top)
    left = n % LANES
    if left > 0:
        top = v.max(load_low(a + 4 * (n - left), left), top)
    return v.hmax(top)


def is_id(i: int, n: int) -> bool:
    """A history may hold ids that this model does not know."""
    return 0 <= i and i < n


def penalize(record: Addr, a: Addr, n: int, maxima: Addr, saved: Addr) -> None:
    """Apply the penalties to the logits at a, keep the old ones, and refresh the chunks' maxima."""
    ids, counts = v.ld_i64(record + IDS), v.ld_i64(record + COUNTS)
    repeat = f32(v.ld_f64(record + REPEAT))
    frequency, presence = f32(v.ld_f64(record + FREQUENCY)), f32(v.ld_f64(record + PRESENCE))
    for j in range(v.ld_i64(record + N_IDS)):
        if not is_id(v.ld_i32(ids + 4 * j), n):
            continue
        at = a + 4 * v.ld_i32(ids + 4 * j)
        x = v.ld_f32(at)
        v.st_f32(saved + 4 * j, x)
        x = f32(x / repeat) if x > f32(0) else f32(x * repeat)
        by = f32(f32(f32(v.ld_i32(counts + 4 * j)) * frequency) + presence)
        v.st_f32(at, f32(x - by))
    for j in range(v.ld_i64(record + N_IDS)):
        if not is_id(v.ld_i32(ids + 4 * j), n):
            continue
        c = v.ld_i32(ids + 4 * j) // CHUNK
        v.st_f32(maxima + 4 * c, chunk_top(a + 4 * CHUNK * c, min(CHUNK, n - c * CHUNK)))


def restore(record: Addr, a: Addr, n: int, saved: Addr) -> None:
    """Put the old logits back."""
    ids = v.ld_i64(record + IDS)
    for j in range(v.ld_i64(record + N_IDS)):
        if not is_id(v.ld_i32(ids + 4 * j), n):
            continue
        v.st_f32(a + 4 * v.ld_i32(ids + 4 * j), v.ld_f32(saved + 4 * j))


def first_of(a: Addr, n: int, maxima: Addr, top: float) -> int:
    """Lowest id whose logit equals the largest one."""
    c = 0
    while v.ld_f32(maxima + 4 * c) != top:
        c += 1
    i = c * CHUNK
    while v.ld_f32(a + 4 * i) != top:
        i += 1
    return min(i, n - 1)


def largest(a: Addr, n: int, maxima: Addr, k: int, keys: Addr) -> int:
    """The k largest logits (k <= n) as keys in falling order; returns k.

    At least k logits reach the k-th largest maximum of a chunk, so only those are looked at.
    """
    chunks = (n + CHUNK - 1) // CHUNK
    low, found = f32(-INFINITY), 0
    for stage in range(2):  # the maxima of chunks, then the logits that reach the k-th of them
        found = 0
        for c in range(chunks):
            i, end = c * CHUNK, min((c + 1) * CHUNK, n)
            at, step = a, LANES
            if stage == 0:
                i, end, at, step = c, c + 1, maxima, 1
            elif v.ld_f32(maxima + 4 * c) < low:
                i = end
            while i < end:
                x = load_low(at + 4 * i, min(LANES, end - i))
                bits = v.mask_bits(v.ge(x, v.splat_f(low))) & ((1 << min(LANES, end - i)) - 1)
                while bits != 0:
                    lane = i + v.ctz(bits)
                    v.st_i64(keys + 8 * found, key_of(v.ld_i32(at + 4 * lane), lane))
                    found += 1
                    bits &= bits - 1
                i += step
        if found > k:
            select_largest(keys, found, k)
        if stage == 0 and k <= chunks:
            low = key_logit(v.ld_i64(keys))
            for i in range(1, k):
                low = min(low, key_logit(v.ld_i64(keys + 8 * i)))
    sort_falling(keys, k)
    return k


@macro
def weight(v: Words, x: F, top: float, by: float) -> F:
    """e^(x / by - top / by)."""
    t = v.splat_f(by)
    return exp(v, v.sub(v.div(x, t), v.div(v.splat_f(top), t)))


def weights(l: Addr, n: int, by: float, to: Addr) -> None:
    """Weights of n falling logits; the memory behind l and `to` is padded to 16."""
    top = v.ld_f32(l)
    for i in range(n, (n + LANES - 1) // LANES * LANES):
        v.st_f32(l + 4 * i, f32(-INFINITY))
    for i in range(0, n, LANES):
        v.st_f(to + 4 * i, weight(v.ld_f(l + 4 * i), top, by))


def total_weight(a: Addr, n: int, top: float) -> float:
    """Sum of e^(l - top) over all logits, in the order of lanes.py."""
    total = f32(0)
    i = 0
    while i < n:
        end = min(i + 4096, n)
        acc = v.zero_f()
        while i < end:
            m = min(LANES, end - i)
            x = v.ld_f(a + 4 * i) if m == LANES else load_low(a + 4 * i, m)
            acc = v.add(acc, weight(x, top, f32(1)))
            i += LANES
        total = f32(total + v.hsum(acc))
    return total


def reach(e: Addr, n: int, total: float, p: float) -> int:
    """Length of the shortest beginning with a probability of at least p; n + 1 if there is none."""
    sum_ = f32(0)
    for i in range(n):
        sum_ = f32(sum_ + f32(v.ld_f32(e + 4 * i) / total))
        if sum_ >= p:
            return i + 1
    return n + 1


def draw(e: Addr, n: int, u: float) -> int:
    """Index of the first weight at which the running sum passes u times the whole."""
    total = 0.0
    for i in range(n):
        total += v.ld_f32(e + 4 * i)
    target, sum_, last = u * total, 0.0, 0
    for i in range(n):
        w = v.ld_f32(e + 4 * i)
        sum_ += w
        if w > f32(0):
            last = i
            if sum_ > target:
                return i
    return last


@macro
def kept(v: Words, x: F, top: float, by: float, min_p: float) -> F:
    """Weights of 16 logits, 0 for those that min_p drops."""
    keep = v.ge(weight.fn(v, x, top, v.f32_bits(0x3F800000)), v.splat_f(min_p))
    return v.select(keep, weight.fn(v, x, top, by), v.zero_f())


def draw_all(a: Addr, n: int, top: float, by: float, min_p: float, u: float, e: Addr) -> int:
    """The draw by id over all logits: chunks first, then the ids of one chunk."""
    chunks = (n + CHUNK - 1) // CHUNK
    total = 0.0
    for c in range(chunks):
        acc = v.zero_f()
        i, end = c * CHUNK, min((c + 1) * CHUNK, n)
        while i < end:
            m = min(LANES, end - i)
            x = v.ld_f(a + 4 * i) if m == LANES else load_low(a + 4 * i, m)
            acc = v.add(acc, kept(x, top, by, min_p))
            i += LANES
        w = v.hsum(acc)
        v.st_f32(e + 4 * c, w)
        total += w
    target, sum_, chosen = u * total, 0.0, 0
    before = 0.0
    for c in range(chunks):
        w = v.ld_f32(e + 4 * c)
        if w > f32(0) and sum_ <= target:
            chosen, before = c, sum_
        sum_ += w
    i, end = chosen * CHUNK, min((chosen + 1) * CHUNK, n)
    for k in range(i, end, LANES):
        m = min(LANES, end - k)
        x = v.ld_f(a + 4 * k) if m == LANES else load_low(a + 4 * k, m)
        v.st_f(e + 4 * (k - i), kept(x, top, by, min_p))
    last = i
    for k in range(i, end):
        w = v.ld_f32(e + 4 * (k - i))
        before += w
        if w > f32(0):
            last = k
            if before > target:
                return k
    return last


def philox(seed: int, sample: int, position: int) -> float:
    """Uniform in [0, 1) with 53 bits: Philox 4x32-10, key (seed, 0), counter (position, sample, 0, 0)."""
    low = 0xFFFFFFFF
    a, b, c, d = position & low, sample & low, 0, 0
    k, m = seed & low, v.lshr(seed, 32)
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = v.lshr(q, 32) ^ b ^ k, q & low, v.lshr(p, 32) ^ d ^ m, p & low
        k, m = (k + 0x9E3779B9) & low, (m + 0xBB67AE85) & low
    return ((a >> 5) * 67108864 + (b >> 6)) * (1.0 / 9007199254740992.0)
