"""A model in memory, ready to step: packed weights, buffers, tables, kernels and the tape.

Nothing here knows sequences or text. Matrices are packed (`engine.packs`); the embedding stays in the
mapped file, since a step reads only a few of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.arch.table import Model as ArchModel
from gguf_runtime.cache.pool import CachePlan
from gguf_runtime.engine.packs import Progress, pack_all
from gguf_runtime.graph.bind import Binder, Tables
from gguf_runtime.graph.bind_matmul import MatmulBinder, Scratch
from gguf_runtime.graph.memory import Buffers, Header
from gguf_runtime.graph.plan import Plan
from gguf_runtime.graph.rope import Rope
from gguf_runtime.graph.rows import AttentionRow, EmbedRow, GateRow, RotateRow, StoreRow
from gguf_runtime.graph.tape import ModelTape, specs_of_calls
from gguf_runtime.graph.weights import Weight
from gguf_runtime.kernels import attention, gate
from quant import gemm, jit
from quant.linear import MOST_STRIPS
from quant.memory import allocate
from quant.packing import Pack
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

ROPE_STEP = 256  # positions whose cosines and sines are made at a time


def scratch_bytes(plan: Plan, n_batch: int) -> tuple[int, int]:
    """Scratch of one thread: what matmuls and attention take, and the gate's own part behind it."""
    own = gemm.scratch_bytes(n_batch, MOST_STRIPS)
    dims = [r.head_dim for r in plan.rows if isinstance(r, AttentionRow)]
    own = max([own, *(attention.scratch_bytes(d) for d in dims)])
    gated = any(isinstance(r, GateRow) for r in plan.rows)
    extra = gate.scratch_bytes(n_batch, 16 * MOST_STRIPS) if gated else 0
    return -(-own // 4096) * 4096, -(-extra // 4096) * 4096 + 64


class Loaded:
    """Weights, buffers and the tape of one model.

    Args:
        file: the open file; kept open for the embedding.
        arch: from `arch.table.load`.
        plan, cache: what to run and where keys and values go.
        pool: threads; stays the caller's.
        n_batch, n_outputs: most tokens, and most logits, of a step.
        n_ctx: most positions of a sequence. n_sequences: most sequences of a step.
        packs: of the plan's matrices; made and kept in memory unless given.
    """

    def __init__(
        self,
        file: GGUFFile,
        arch: ArchModel,
        plan: Plan,
        cache: CachePlan,
        cache_type: str,
        pool: Pool,
        *,
        n_ctx: int,
        n_batch: int,
        n_outputs: int,
        n_sequences: int,
        isa: str | None = None,
        packs: Mapping[Weight, Pack] | None = None,
        progress: Progress | None = None,
        notice: jit.Notice | None = None,
    ) -> None:
        self.file, self.arch, self.plan, self.cache_type = file, arch, plan, cache_type
        self.n_ctx, self.n_batch, self.n_outputs = n_ctx, n_batch, n_outputs
        self.n_sequences = n_sequences
        self.pool = pool
        self.packs = packs if packs is not None else pack_all(file, plan.matrices(), pool, progress)
        self._vectors = self._decode_vectors()
        self.buffers = Buffers(plan, {"tokens": n_batch, "outputs": n_outputs})
        self.header = Header(n_batch, n_sequences, len(cache.windows), len(cache.places))
        self._ropes = self._rope_memory()
        self._roped = 0
        matmul_bytes, gate_bytes = scratch_bytes(plan, n_batch)
        step = matmul_bytes + gate_bytes
        self._scratch = allocate(step * pool.threads)
        scratch = Scratch(int(self._scratch.ctypes.data), step, matmul_bytes)
        matmul = MatmulBinder(
            self.packs,
            {w: int(x.ctypes.data) for w, x in self._vectors.items()},
            self.buffers,
            scratch,
            pool.threads,
        )
        binder = Binder(
            plan,
            cache,
            cache_type,
            matmul,
            {w: int(x.ctypes.data) for w, x in self._vectors.items()},
            self.buffers,
            self.header,
            {
                r: Tables(int(c.ctypes.data), int(s.ctypes.data))
                for r, (c, s) in self._ropes.items()
            },
            scratch,
            pool.threads,
            self._embedding(),
        )
        calls = [call for row in plan.rows for call in binder.calls(row)]
        compiled: jit.Progress | None = None
        if progress is not None:
            tell = progress

            def compiled(done: int, total: int, name: str) -> None:
                tell("compiling kernels", done, total)

        begin = time.perf_counter()
        self.kernels = jit.load(specs_of_calls(calls), isa, progress=compiled, notice=notice)
        self.compile_s = time.perf_counter() - begin
        self.tape = ModelTape(pool, calls, self.kernels, binder.heads)

    def ropes_until(self, end: int) -> None:
        """Make cosines and sines for positions below `end`."""
        while self._roped < end:
            start, stop = self._roped, min(self._roped + ROPE_STEP, self.n_ctx)
            for rope, (cos, sin) in self._ropes.items():
                cos[start:stop], sin[start:stop] = rope.cos_sin(np.arange(start, stop))
            self._roped = stop

    @property
    def weights_bytes(self) -> int:
        """Packed weights."""
        return sum(len(p.data) for p in self.packs.values())

    # ---- loading ----------------------------------------------------------------------------------

    def _embedding(self) -> U8:
        """The file's bytes of the embedding that the plan begins with, mapped."""
        row = next(r for r in self.plan.rows if isinstance(r, EmbedRow))
        return self.file.tensor_bytes(row.weight.tensor)

    def _decode_vectors(self) -> dict[Weight, F32]:
        """Norms and biases as floats, padded to whole strips."""
        out: dict[Weight, F32] = {}
        for w in self.plan.vectors():
            values = self.arch.weights.values(w).reshape(-1)
            padded = np.zeros(-(-len(values) // 16) * 16 + 16, np.float32)
            padded[: len(values)] = values
            out[w] = padded
        return out

    def _rope_memory(self) -> dict[Rope, tuple[F32, F32]]:
        out: dict[Rope, tuple[F32, F32]] = {}
        for rope in ropes_of(self.plan):
            shape = (self.n_ctx, rope.n_rot // 2)
            size = 4 * shape[0] * shape[1]
            cos, sin = (
                allocate(size + 64)[:size].view(np.float32).reshape(shape) for _ in range(2)
            )
            out[rope] = cos, sin
        return out


def ropes_of(plan: Plan) -> list[Rope]:
    """The ropes of a plan, each once."""
    ropes: dict[Rope, None] = {}
    for row in plan.rows:
        if isinstance(row, RotateRow):
            ropes[row.rope] = None
        elif isinstance(row, StoreRow):
            ropes.update({r: None for r in (row.q_rope, row.k_rope) if r is not None})
    return list(ropes)
