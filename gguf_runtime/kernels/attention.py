"""Attention over cache pages: softmax(q k) v for tiles of queries and heads, and the merge of spans.

args   ARGS below for `attention`, MERGE_ARGS for `merge`, one 8-byte slot each
       q f32 [T][n_head][key_dim], the scale folded in · out f32 [T][n_head][value_dim] written
       pos i32 [T] · seq i32 [T] · tables, layer_offset, head_bytes, key_bytes: as rope.py
       window: a query at p sees p - window + 1 .. p; 0: all up to p
       items i32 [task][8]: first token, tokens (ascending positions of one sequence), first head,
       heads (of one kv head), first span, spans, slot (-1: the item is all of its queries), kv head
       partial f32 [slot][n_head][16 + value_dim rounded up to 16]: m, l, then out; token t of an
       item uses slot + t; an item with slots has one span
       merge rows i32 [row][4]: token, its first slot, spans, slots from one span to the next
       scratch: scratch_bytes() per thread, `scratch_step` apart
task   attention: one item; merge: row * n_head + head
does   out = sum_t exp(s_t - max s) v_t / sum_t exp(s_t - max s), s_t = q k_t
order  blocks of 64 and spans of 512 absolute positions. s: one fma chain over key_dim, ascending.
       Per block with a visible position: m' = max(m, max s); r = exp(m - m'); p = exp(s - m'), 0 where
       hidden; l = l r + ((p0 + p1) + (p2 + p3) in strips of 16, folded); out = out r, then per visible t
       ascending out = fma(p, v, out). Spans that have one merge in ascending order into (M, L, O):
       M' = max(M, m); L = L exp(M - M') + l exp(m - M'), O alike, products rounded; then O / L.
       The order of a (query, head) depends on nothing but its position, so decode equals prefill.
exact  equals `bits`; within RTOL * max|v| of `reference` (float64)
cost   2 key_dim fma per position and column; keys and values are read once per item
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.attention_column import (
    COLUMNS,
    LOWEST,
    SUMS,
    copy_span,
    high,
    merge_bits,
    merge_span,
    soften,
    span_bits,
    write_out,
)
from gguf_runtime.kernels.attention_scratch import (
    MERGED_AT,
    POSITIONS_AT,
    SCALES_AT,
    SCORES_AT,
    SHARED_AT,
    STATE_AT,
    WEIGHTS_AT,
)
from gguf_runtime.kernels.attention_scratch import partial_floats as partial_floats
from gguf_runtime.kernels.attention_scratch import row_floats as row_floats
from gguf_runtime.kernels.attention_scratch import scratch_bytes as scratch_bytes
from gguf_runtime.kernels.attention_shared import WIDTH, shared_scores, shared_values
from gguf_runtime.kernels.attention_tiles import (
    dispatch_scores,
    dispatch_values,
    unpack_scales,
)
from quant.jit import kernel
from quant.simd import Addr, v

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]

ARGS = (
    "q", "q_stride", "out", "out_stride", "key_dim", "value_dim", "pos", "seq", "tables",
    "layer_offset", "head_bytes", "key_bytes", "window", "items", "partial", "n_head",
    "scratch", "scratch_step",
)  # fmt: skip
(
    Q, Q_STRIDE, OUT, OUT_STRIDE, KEY_DIM, VALUE_DIM, POS, SEQ, TABLES,
    LAYER_OFFSET, HEAD_BYTES, KEY_BYTES, WINDOW, ITEMS, PARTIAL, N_HEAD,
    SCRATCH, SCRATCH_STEP,
) = range(0, 8 * len(ARGS), 8)  # fmt: skip

MERGE_ARGS = (
    "out", "out_stride", "value_dim", "partial", "n_head", "rows", "scratch", "scratch_step",
)  # fmt: skip
(M_OUT, M_OUT_STRIDE, M_VALUE_DIM, M_PARTIAL, M_N_HEAD, M_ROWS, M_SCRATCH, M_SCRATCH_STEP) = range(
    0, 8 * len(MERGE_ARGS), 8
)

BLOCK, SPAN = 64, 512  # positions
RTOL = 2e-6  # of max|v|: scores of key_dim rounded steps, exp, a sum over the block

# ---- the truth ---------------------------------------------------------------------------------


def reference(q: F64, k: F64, x: F64, pos: I32, window: int) -> F64:
    """q (T, n_head, dk) scaled, k (P, n_kv, dk), x (P, n_kv, dv) of one sequence -> (T, n_head, dv)."""
    group = q.shape[1] // k.shape[1]
    k, x = (a.astype(np.float64).repeat(group, 1).transpose(1, 0, 2) for a in (k, x))
    out = np.empty((*q.shape[:2], x.shape[2]))
    for t, p in enumerate(pos):
        first = max(0, int(p) - window + 1) if window else 0
        s = np.einsum("hd,hpd->hp", q[t].astype(np.float64), k[:, first : p + 1])
        e = np.exp(s - s.max(-1, keepdims=True))
        out[t] = np.einsum("hp,hpd->hd", e, x[:, first : p + 1]) / e.sum(-1, keepdims=True)
    return out


def bits(q: F32, k: F32, x: F32, pos: I32, window: int) -> F32:
    """The same in float32 as the kernel does it; k and x as they read back from the cache."""
    group = q.shape[1] // k.shape[1]
    k, x = (a.astype(np.float32).repeat(group, 1).transpose(1, 0, 2) for a in (k, x))
    out = np.empty((*q.shape[:2], x.shape[2]), np.float32)
    with np.errstate(all="ignore"):
        for t in range(len(pos)):
            first = max(0, int(pos[t]) - window + 1) if window else 0
            end = int(pos[t]) + 1
            merged = None
            for span in range(first // SPAN, (end - 1) // SPAN + 1):
                lo, hi = max(first, span * SPAN), min(end, (span + 1) * SPAN)
                part = span_bits(q[t], k, x, lo, hi)
                merged = part if merged is None else merge_bits(merged, part)
            assert merged is not None
            out[t] = merged[2] / merged[1][:, None]
    return out


# ---- kernels -----------------------------------------------------------------------------------


@kernel(check="check")
def attention(cache: str) -> KernelFn:
    """Kernel over pages of cache type "f16", "f32" or "q8_0"."""
    scores: Callable[..., Any] = dispatch_scores(cache)
    values: Callable[..., Any] = dispatch_values(cache)
    many_scores: Callable[..., Any] = shared_scores(cache)
    many_values: Callable[..., Any] = shared_values(cache)
    scaled = cache == "q8_0"

    def columns(args: int, item: Addr, scratch: Addr) -> int:
        """Addresses and positions of the columns: queries ascending, their heads inside; how many.

        More than one tile is made a multiple of tiles, by columns whose results nobody takes.
        """
        first, head, heads = v.ld_i32(item), v.ld_i32(item + 8), v.ld_i32(item + 12)
        step, dim = v.ld_i64(args + Q_STRIDE), v.ld_i64(args + KEY_DIM)
        q = v.ld_i64(args + Q) + first * step + head * dim * 4
        pos = v.ld_i64(args + POS) + first * 4
        c = scratch
        for t in range(v.ld_i32(item + 4)):
            p = v.ld_i32(pos + 4 * t)
            for h in range(heads):
                v.st_i64(c, q + t * step + h * dim * 4)
                v.st_i64(c + POSITIONS_AT, p)
                c += 8
        n = (c - scratch) >> 3
        if n > WIDTH:
            for _ in range(n, (n + WIDTH - 1) // WIDTH * WIDTH):
                v.st_i64(c, v.ld_i64(c - 8))
                v.st_i64(c + POSITIONS_AT, v.ld_i64(c + POSITIONS_AT - 8))
                c += 8
            n = (c - scratch) >> 3
            for i in range(n):
                v.st_i64(scratch + WEIGHTS_AT + 8 * i, scratch + SCORES_AT + 256 * i)
        return n

    def block(
        args: int, keys: Addr, coming: Addr, start: int, n: int, scratch: Addr, scales: Addr,
        o: Addr, size: int,
    ) -> None:  # fmt: skip
        """One block of 64 positions for n columns; the keys at `coming` are wanted next."""
        at, s, window = scratch + POSITIONS_AT, scratch + SCORES_AT, v.ld_i64(args + WINDOW)
        dim, shared = v.ld_i64(args + KEY_DIM), scratch + SHARED_AT
        key_bytes = v.ld_i64(args + KEY_BYTES)
        x, value_bytes = keys + key_bytes, v.ld_i64(args + HEAD_BYTES) - key_bytes
        if n > WIDTH:
            many_scores(keys, scratch, at, start, window, n, dim, s, shared, x, value_bytes)
        else:
            last = high(at + 8 * (n - 1), start)
            scores(keys, scratch, n, dim, last, s, key_bytes)
        soften(s, scratch + STATE_AT, at, start, window, n, o, size)
        if scaled:
            groups = v.ld_i64(args + VALUE_DIM) >> 5
            unpack_scales(x, scales, groups)
            x += groups * (2 * BLOCK)
        if n > WIDTH:
            w = scratch + WEIGHTS_AT
            many_values(x, scales, at, start, window, w, n, o, size, shared, coming, key_bytes)
        else:
            values(x, scales, at, start, window, s, n, o, size, coming - x)

    def finish(args: int, item: Addr, state: Addr, o: Addr, size: int) -> None:
        """The tile's results, into out or into the slots of partial."""
        first, head, slot = v.ld_i32(item), v.ld_i32(item + 8), v.ld_i32(item + 24)
        heads, dim = v.ld_i32(item + 12), v.ld_i64(args + VALUE_DIM)
        for t in range(v.ld_i32(item + 4)):
            row = v.ld_i64(args + OUT) + (first + t) * v.ld_i64(args + OUT_STRIDE)
            part = v.ld_i64(args + PARTIAL) + (slot + t) * v.ld_i64(args + N_HEAD) * (64 + size)
            for h in range(head, head + heads):
                if slot < 0:
                    write_out(row + h * dim * 4, o, v.ld_f32(state + SUMS), dim)
                else:
                    to, m, l = part + h * (64 + size), v.ld_f32(state), v.ld_f32(state + SUMS)
                    copy_span(to, 4, to + 64, m, l, o, size >> 2)
                state += 4
                o += size

    def attention(args: int, task: int, thread: int) -> None:
        item = v.ld_i64(args + ITEMS) + 32 * task
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_STEP)
        dim = v.ld_i64(args + VALUE_DIM)
        size = ((dim + 15) >> 4) * 64
        scales = scratch + SCALES_AT
        o = scales + 4 * BLOCK * ((dim + 31) >> 5)
        merged = o + COLUMNS * size
        n = columns(args, item, scratch)
        at, state, total = scratch + POSITIONS_AT, scratch + STATE_AT, scratch + MERGED_AT
        window = v.ld_i64(args + WINDOW)
        first, last = v.ld_i64(at), v.ld_i64(at + 8 * (n - 1))
        lowest = max(first - window + 1, 0) if window > 0 else 0
        seq = v.ld_i32(v.ld_i64(args + SEQ) + 4 * v.ld_i32(item))
        table = v.ld_i64(v.ld_i64(args + TABLES) + 8 * seq)
        head = v.ld_i64(args + LAYER_OFFSET) + v.ld_i32(item + 28) * v.ld_i64(args + HEAD_BYTES)
        span, spans = v.ld_i32(item + 16), v.ld_i32(item + 20)
        for i in range(span, span + spans):
            for k in range(0, 4 * n, 64):
                v.st_f(state + k, v.splat_f(LOWEST))
                v.st_f(state + SUMS + k, v.zero_f())
            for k in range(0, n * size, 64):
                v.st_f(o + k, v.zero_f())
            begin, end = max(8 * i, lowest >> 6), min(8 * i + 8, (last >> 6) + 1)
            for b in range(begin, end):
                keys = v.ld_i64(table + 8 * b) + head
                # After the last, what is most likely this thread's next item: another head's keys.
                coming = v.ld_i64(table + 8 * begin) + head + v.ld_i64(args + HEAD_BYTES)
                if b + 1 < end:
                    coming = v.ld_i64(table + 8 * b + 8) + head
                block(args, keys, coming, b * BLOCK, n, scratch, scales, o, size)
            if spans > 1:
                for c in range(n):
                    p = v.ld_i64(at + 8 * c)
                    own = max(p - window + 1, 0) >> 9 if window > 0 else 0
                    to, x, into = merged + c * size, o + c * size, total + 4 * c
                    m, l = v.ld_f32(state + 4 * c), v.ld_f32(state + SUMS + 4 * c)
                    if i == own:
                        copy_span(into, SUMS, to, m, l, x, size >> 2)
                    elif own < i and i <= p >> 9:
                        merge_span(into, SUMS, to, m, l, x, size >> 2)
        if spans > 1:
            state, o = total, merged
        finish(args, item, state, o, size)

    return attention


@kernel(check="check_merge")
def merge() -> KernelFn:
    """Kernel that merges the spans of one (query, head) in ascending order."""

    def merge(args: int, task: int, thread: int) -> None:
        heads, dim = v.ld_i64(args + M_N_HEAD), v.ld_i64(args + M_VALUE_DIM)
        row = v.ld_i64(args + M_ROWS) + 16 * (task // heads)
        head = task % heads
        size = ((dim + 15) >> 4) * 64
        step = v.ld_i32(row + 12) * heads * (64 + size)
        part = v.ld_i64(args + M_PARTIAL) + (v.ld_i32(row + 4) * heads + head) * (64 + size)
        state = v.ld_i64(args + M_SCRATCH) + thread * v.ld_i64(args + M_SCRATCH_STEP)
        m, l = v.ld_f32(part), v.ld_f32(part + 4)
        copy_span(state, 4, state + 64, m, l, part + 64, size >> 2)
        for _ in range(1, v.ld_i32(row + 8)):
            part += step
            m, l = v.ld_f32(part), v.ld_f32(part + 4)
            merge_span(state, 4, state + 64, m, l, part + 64, size >> 2)
        out = v.ld_i64(args + M_OUT) + v.ld_i32(row) * v.ld_i64(args + M_OUT_STRIDE)
        write_out(out + head * dim * 4, state + 64, v.ld_f32(state + 4), dim)

    return merge


def check(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import attention_checks

    return attention_checks.check_attention(run, *params)


def check_merge(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import attention_checks

    return attention_checks.check_merge(run, *params)
