"""Choosing a token from a row of logits: penalties, top-k, top-p, min-p, temperature, draw.

args   ARGS below, one 8-byte slot each, the same for both kernels
       logits f32 [row][n_vocab] read (penalties are applied in place and taken back) · records:
       [record][RECORD slots]: what to do for one sequence, and the result · maxima f32
       [record][n_chunks] and states i64 [record][n_parts], written by `scan`, read by `pick`
       scratch: scratch_bytes(n_vocab) per thread, `scratch_step` apart · n_vocab < 2^31
record row · temperature, top_p, min_p, repeat, frequency, presence f64 · top_k, seed, sample, position
       · ids, counts: addresses of i32 [n_ids], distinct tokens of the history and how often each stands
       there · id, state: the results
task   scan: record * n_parts + part, 16,384 logits; pick: one record
does   the chain of llama.cpp. l > 0: l / repeat, else l * repeat; then l - (count * frequency +
       presence). temperature 0: the first maximum. top_k largest (0: all); top_p: the shortest beginning
       whose probabilities reach it (1: all); min_p: probability at least min_p times the largest
       (0: all); l / temperature; then the first candidate at which the weights pass u times their sum,
       u from (seed, sample, position). Of equal logits the lower id is the larger.
state  0; 1: NaN or +infinity among the logits, id -1; 2: -infinity among them; 4: all of them, id -1
order  candidates stand by falling logit, or by id where neither top_k nor top_p cuts. Sums of
       probabilities: lanes.py, over what top_k left; the running sum of top_p in float32, of the draw in
       float64 (by id: chunks of 256 folded in float32 first). exp of the vocabulary
exact  equals `bits`
cost   one read of the logits and of the chunks that hold a candidate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf_runtime.kernels.lanes import f32, vector_sum
from gguf_runtime.kernels.sample_bits import CHUNK, PART, RECORD
from gguf_runtime.kernels.select import key_index, key_logit, key_of, select_largest, sort_falling
from quant.jit import kernel
from quant.simd import LANES, Addr, F, macro, v
from quant.simd.elementary import exp

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn
    from quant.simd.words import Words

ARGS = (
    "logits", "stride", "n_vocab", "records", "maxima", "states", "scratch", "scratch_step"
)  # fmt: skip
LOGITS, STRIDE, N_VOCAB, RECORDS, MAXIMA, STATES, SCRATCH, SCRATCH_STEP = range(0, 64, 8)
(
    ROW, TEMPERATURE, TOP_K, TOP_P, MIN_P, REPEAT, FREQUENCY, PRESENCE, SEED, SAMPLE, POSITION,
    IDS, COUNTS, N_IDS, ID, STATE,
) = range(0, 8 * len(RECORD), 8)  # fmt: skip
RECORD_BYTES = 8 * len(RECORD)

BAD, MASKED, NOTHING = 1, 2, 4
FIRST_TRY = 256  # candidates that top_p without top_k looks at first
INFINITY = float("inf")


def n_chunks(n_vocab: int) -> int:
    """Float32 of maxima per record."""
    return -(-n_vocab // CHUNK)


def n_parts(n_vocab: int) -> int:
    """Tasks of `scan`, and words of states, per record."""
    return -(-n_vocab // PART)


def scratch_bytes(n_vocab: int) -> int:
    """Bytes that one thread of `pick` needs: keys, then logits and weights, then saved logits."""
    return (16 + 4) * (n_vocab + 2 * LANES)


# ---- scan --------------------------------------------------------------------------------------


@macro
def load_low(v: Words, a: Addr, n: int) -> F:
    """The first n logits, -inf in the other lanes."""
    return v.select(v.lt_w(v.iota_w(), v.splat_w(n)), v.ld_f_tail(a, n), v.splat_f(float("-inf")))


@macro
def look(v: Words, x: F, top: F, bad: F, low: F) -> tuple[F, F, F]:
    """Running maximum, and 1 in lanes that saw NaN or +inf, or -inf."""
    one = v.splat_f(1.0)
    bad = v.select(v.lt(x, v.splat_f(INFINITY)), bad, one)
    low = v.select(v.eq(x, v.splat_f(-INFINITY)), one, low)
    return v.max(x, top), bad, low


def chunk_top(a: Addr, n: int) -> float:
    """Largest of n logits."""
    top = v.splat_f(f32(-INFINITY))
    for i in range(0, n - LANES + 1, LANES):
        top = v.max(v.ld_f(a + 4 * i), top)
    left = n % LANES
    if left > 0:
        top = v.max(load_low(a + 4 * (n - left), left), top)
    return v.hmax(top)


@kernel(
    uses=["gguf_runtime.kernels.lanes", "gguf_runtime.kernels.sample_bits", "gguf_runtime.kernels.select"],
    check="check_scan",
)  # fmt: skip
def scan() -> KernelFn:
    """Kernel that finds the largest logit of every chunk, and NaN and infinity."""

    def scan(args: int, task: int, thread: int) -> None:
        n = v.ld_i64(args + N_VOCAB)
        parts = (n + PART - 1) // PART
        r, part = task // parts, task % parts
        record = v.ld_i64(args + RECORDS) + r * RECORD_BYTES
        a = v.ld_i64(args + LOGITS) + v.ld_i64(record + ROW) * v.ld_i64(args + STRIDE)
        chunks = (n + CHUNK - 1) // CHUNK
        to = v.ld_i64(args + MAXIMA) + 4 * (r * chunks + part * (PART // CHUNK))
        bad, low = v.zero_f(), v.zero_f()
        i = part * PART
        end = min(i + PART, n)
        while i < end:
            stop = min(i + CHUNK, end)
            top = v.splat_f(f32(-INFINITY))
            while i + LANES <= stop:
                top, bad, low = look(v.ld_f(a + 4 * i), top, bad, low)
                i += LANES
            if i < stop:
                top = v.max(load_low(a + 4 * i, stop - i), top)
                _, bad, low = look(v.ld_f_tail(a + 4 * i, stop - i), top, bad, low)
                i = stop
            v.st_f32(to, v.hmax(top))
            to += 4
        state = 0
        if v.hmax(bad) > f32(0):
            state += BAD
        if v.hmax(low) > f32(0):
            state += MASKED
        v.st_i64(v.ld_i64(args + STATES) + 8 * task, state)

    return scan


# ---- pick --------------------------------------------------------------------------------------


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
    low = f32(-INFINITY)
    if k <= chunks:
        for c in range(chunks):
            v.st_i64(keys + 8 * c, key_of(v.ld_i32(maxima + 4 * c), c))
        select_largest(keys, chunks, k)
        low = key_logit(v.ld_i64(keys + 8 * (k - 1)))
        for i in range(k - 1):
            low = min(low, key_logit(v.ld_i64(keys + 8 * i)))
    found = 0
    for c in range(chunks):
        if v.ld_f32(maxima + 4 * c) >= low:
            i, end = c * CHUNK, min((c + 1) * CHUNK, n)
            while i < end:
                m = min(LANES, end - i)
                x = v.ld_f(a + 4 * i) if m == LANES else v.ld_f_tail(a + 4 * i, m)
                bits = v.mask_bits(v.ge(x, v.splat_f(low))) & ((1 << m) - 1)
                while bits != 0:
                    lane = i + v.ctz(bits)
                    v.st_i64(keys + 8 * found, key_of(v.ld_i32(a + 4 * lane), lane))
                    found += 1
                    bits &= bits - 1
                i += LANES
    if found > k:
        select_largest(keys, found, k)
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


@kernel(
    uses=["gguf_runtime.kernels.lanes", "gguf_runtime.kernels.sample_bits", "gguf_runtime.kernels.select"],
    check="check_pick",
)  # fmt: skip
def pick() -> KernelFn:
    """Kernel that chooses an id for every record."""

    def chain(record: Addr, a: Addr, n: int, maxima: Addr, top: float, keys: Addr) -> int:
        """The id for a positive temperature."""
        by = f32(v.ld_f64(record + TEMPERATURE))
        top_p, min_p = f32(v.ld_f64(record + TOP_P)), f32(v.ld_f64(record + MIN_P))
        u = philox(v.ld_i64(record + SEED), v.ld_i64(record + SAMPLE), v.ld_i64(record + POSITION))
        k = v.ld_i64(record + TOP_K)
        cut = 0 < k and k < n
        l = keys + 8 * (n + LANES)
        e = l + 4 * (n + LANES)
        if not cut and top_p >= f32(1):
            return draw_all(a, n, top, by, min_p, u, e)
        m = k if cut else min(n, FIRST_TRY)
        while True:
            largest(a, n, maxima, m, keys)
            for i in range(m):
                v.st_f32(l + 4 * i, key_logit(v.ld_i64(keys + 8 * i)))
            weights(l, m, f32(1), e)
            size = m
            if top_p < f32(1):
                total = vector_sum(e, m) if cut else total_weight(a, n, top)
                size = reach(e, m, total, top_p)
            if size <= m or cut or m == n:
                break
            m = min(n, 8 * m)
        m, size = min(size, m), 1
        while size < m and v.ld_f32(e + 4 * size) >= min_p:
            size += 1
        weights(l, size, by, e)
        return key_index(v.ld_i64(keys + 8 * draw(e, size, u)))

    def pick(args: int, task: int, thread: int) -> None:
        n = v.ld_i64(args + N_VOCAB)
        parts, chunks = (n + PART - 1) // PART, (n + CHUNK - 1) // CHUNK
        record = v.ld_i64(args + RECORDS) + task * RECORD_BYTES
        a = v.ld_i64(args + LOGITS) + v.ld_i64(record + ROW) * v.ld_i64(args + STRIDE)
        maxima = v.ld_i64(args + MAXIMA) + 4 * task * chunks
        keys = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_STEP)
        state = 0
        for i in range(parts):
            state |= v.ld_i64(v.ld_i64(args + STATES) + 8 * (task * parts + i))
        saved = keys + 16 * (n + LANES)
        penalize(record, a, n, maxima, saved)
        top = f32(-INFINITY)
        for c in range(chunks):
            top = max(top, v.ld_f32(maxima + 4 * c))
        if top == f32(-INFINITY):
            state |= NOTHING
        chosen = -1
        if state & (BAD | NOTHING) == 0:
            if v.ld_f64(record + TEMPERATURE) > 0.0:
                chosen = chain(record, a, n, maxima, top, keys)
            else:
                chosen = first_of(a, n, maxima, top)
        restore(record, a, n, saved)
        v.st_i64(record + ID, chosen)
        v.st_i64(record + STATE, state)

    return pick


def check_scan(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import sample_checks

    return sample_checks.check_scan(run)


def check_pick(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import sample_checks

    return sample_checks.check_pick(run)
