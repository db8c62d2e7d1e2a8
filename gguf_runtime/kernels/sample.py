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
from gguf_runtime.kernels.sample_steps import (
    ID,
    INFINITY,
    MIN_P,
    POSITION,
    ROW,
    SAMPLE,
    SEED,
    STATE,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    draw,
    draw_all,
    first_of,
    largest,
    load_low,
    penalize,
    philox,
    reach,
    restore,
    total_weight,
    weights,
)  # fmt: skip
from gguf_runtime.kernels.select import key_index, key_logit
from quant.jit import kernel
from quant.simd import LANES, Addr, F, macro, v

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn
    from quant.simd.words import Words

ARGS = (
    "logits", "stride", "n_vocab", "records", "maxima", "states", "scratch", "scratch_step"
)  # fmt: skip
LOGITS, STRIDE, N_VOCAB, RECORDS, MAXIMA, STATES, SCRATCH, SCRATCH_STEP = range(0, 64, 8)
RECORD_BYTES = 8 * len(RECORD)

BAD, MASKED, NOTHING = 1, 2, 4
FIRST_TRY = 256  # candidates that top_p without top_k looks at first


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
def look(v: Words, x: F, top: F, bad: F, low: F) -> tuple[F, F, F]:
    """Running maximum, and 1 in lanes that saw NaN or +inf, or -inf."""
    one = v.splat_f(1.0)
    bad = v.select(v.lt(x, v.splat_f(INFINITY)), bad, one)
    low = v.select(v.eq(x, v.splat_f(-INFINITY)), one, low)
    return v.max(x, top), bad, low


@kernel(check="check_scan")
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


@kernel(check="check_pick")
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
