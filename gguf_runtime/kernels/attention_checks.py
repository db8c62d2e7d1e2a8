"""Cases of the attention kernels against their `bits`, as checks.py has them for the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache import pages
from gguf_runtime.kernels import attention
from gguf_runtime.kernels.attention_column import COLUMNS, merge_bits
from gguf_runtime.kernels.checks import Cache, Guarded, Run, run_all, same_bits
from gguf_runtime.kernels.slots import row

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


def whole_items(pos: I32, n_head: int, n_head_kv: int) -> I32:
    """Every run of ascending positions as one tile per kv head, all spans, written to out."""
    group = n_head // n_head_kv
    items, start = [], 0
    while start < len(pos):
        n = 1
        while (
            start + n < len(pos) and pos[start + n] == pos[start] + n and (n + 1) * group <= COLUMNS
        ):
            n += 1
        for h in range(n_head_kv):
            spans = int(pos[start + n - 1]) // attention.SPAN + 1
            items.append((start, n, h * group, group, 0, spans, -1, h))
        start += n
    return np.array(items, np.int32)


def check_attention(run: Run, cache: str) -> str:
    """Every width of tile, heads with tails, a window, a span border."""
    shapes = (
        (9, 3, 64, range(60, 70), 0),
        (4, 1, 32, range(9), 3),
        (3, 3, 32, (510, 511, 512), 40),
    )
    odd = ((5, 1, 20, (0, 1, 77), 0), (2, 2, 40, range(30), 7))
    for n_head, n_head_kv, dim, positions, window in (*shapes, *(() if cache == "q8_0" else odd)):
        pos = np.array(positions, np.int32)
        case = AttentionCase(cache, n_head, n_head_kv, dim, pos, window)
        got = case.run(run, whole_items(pos, n_head, n_head_kv))
        if not same_bits(got, case.bits()):
            return f"out differs: {n_head} heads, {n_head_kv} kv heads, dim {dim}, window {window}"
    return ""


class AttentionCase:
    """Random queries, keys and values; positions after the last stay poisoned."""

    def __init__(
        self,
        cache: str,
        n_head: int,
        n_head_kv: int,
        dim: int,
        pos: I32,
        window: int,
        seed: int = 3,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.pos, self.window, self.n_head = pos, window, n_head
        self.seq = np.ones(len(pos), np.int32)
        n = int(pos.max()) + 1
        layout = pages.Layout(cache, dim, dim, n_head_kv)
        self.cache = Cache(layout, n)
        k, x = rng.normal(0, 1, (2, n, n_head_kv, dim)).astype(np.float32)
        for p in range(n):
            self.cache.write(p, k[p], x[p])
        self.k, self.x = pages.rounded(cache, k), pages.rounded(cache, x)
        self.q = (rng.normal(0, 3, (len(pos), n_head, dim)) * dim**-0.5).astype(np.float32)
        self.out = Guarded(*self.q.shape)

    def bits(self) -> F32:
        """What the kernel must give."""
        return attention.bits(self.q, self.k, self.x, self.pos, self.window)

    def args(self, items: I32, partial: F32) -> tuple[I64, Guarded]:
        """The row of the kernel, and its scratch."""
        dim = self.q.shape[2]
        step = 4 * self.n_head * dim
        scratch = Guarded(attention.scratch_bytes(dim), dtype=np.uint8)
        args = row(
            attention.ARGS, q=self.q, q_stride=step, out=self.out.array, out_stride=step,
            pos=self.pos, seq=self.seq, window=self.window, items=items,
            partial=partial, n_head=self.n_head, scratch=scratch.array, **self.cache.slots(),
        )  # fmt: skip
        return args, scratch

    def run(self, run: Run, items: I32) -> F32:
        """The kernel's out; items may use no slots."""
        args, scratch = self.args(items, np.zeros(0, np.float32))
        run_all(run, args, len(items))
        assert self.out.intact(), "out was written past its end"
        assert scratch.intact(), "scratch was written past its end"
        return self.out.array


def check_merge(run: Run) -> str:
    """Three spans with different maxima, heads with a tail."""
    rng = np.random.default_rng(4)
    n_head, dim = 2, 20
    width = attention.row_floats(dim)
    partial = np.zeros((5, n_head, 16 + width), np.float32)
    partial[..., 0], partial[..., 1] = rng.normal(0, 9, (5, n_head)), rng.uniform(1, 9, (5, n_head))
    partial[..., 16 : 16 + dim] = rng.normal(0, 1, (5, n_head, dim))
    rows = np.array([[1, 0, 3, 2], [0, 1, 1, 2]], np.int32)
    out, scratch = Guarded(2, n_head, dim), Guarded(64 + 4 * width, dtype=np.uint8)
    args = row(
        attention.MERGE_ARGS, out=out.array, out_stride=4 * n_head * dim, value_dim=dim,
        partial=partial, n_head=n_head, rows=rows, scratch=scratch.array,
    )  # fmt: skip
    run_all(run, args, 2 * n_head)
    for token, first, spans, step in rows:
        parts = [partial[first + k * step] for k in range(spans)]
        states = [(p[:, 0], p[:, 1], p[:, 16 : 16 + dim]) for p in parts]
        state = states[0]
        for later in states[1:]:
            state = merge_bits(state, later)
        if not same_bits(out.array[token], state[2] / state[1][:, None]):
            return "out differs"
    return "" if out.intact() and scratch.intact() else "wrote past a buffer"
