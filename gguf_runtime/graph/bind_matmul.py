"""Matmul rows -> kernel calls: strips per task, a body by columns, matrices side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gguf_runtime.graph.calls import Call, Cost, Times, Together, Value
from gguf_runtime.graph.memory import Buffers, stride_of
from gguf_runtime.graph.rows import Buffer, Counts, MatmulRow, Part
from gguf_runtime.graph.weights import Weight
from quant import gemm
from quant.linear import bodies_of, strips_per_task

if TYPE_CHECKING:
    from quant.packing import Pack


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of each thread, `step` bytes apart; the gate's own part begins at `gate`."""

    address: int
    step: int
    gate: int


class MatmulBinder:
    """Binds matrices to packs, buffers and scratch."""

    def __init__(
        self,
        packs: Mapping[Weight, Pack],
        vectors: Mapping[Weight, int],
        buffers: Buffers,
        scratch: Scratch,
        threads: int,
    ) -> None:
        self._packs, self._vectors, self._buffers = packs, vectors, buffers
        self._scratch, self._threads = scratch, threads

    def row(self, row: MatmulRow) -> Call | Together:
        """One call, or several side by side."""
        calls = tuple(self._part(row.name, row.counts, p) for p in row.parts)
        return calls[0] if len(calls) == 1 else Together(row.name, calls)

    def _part(self, name: str, counts: Counts, part: Part) -> Call:
        tile = strips_per_task(self._packs[part.weight].n_strips, self._threads)
        args = self.matrix(part.weight, part.bias, part.x, counts, tile)
        args[gemm.OUT // 8] = self._buffers.address(part.out)
        args[gemm.LD_OUT // 8] = stride_of(part.out.width)
        if part.resid is not None:
            args[gemm.RESID // 8] = self._buffers.address(part.resid)
            args[gemm.LD_RESID // 8] = stride_of(part.resid.width)
        return self.call(name, part.weight, part.x, args, counts, tile)

    def matrix(
        self, weight: Weight, bias: Weight | None, x: Buffer, counts: Counts, tile: int
    ) -> list[Value]:
        """Arguments of a matrix without output and residual."""
        pack = self._packs[weight]
        args: list[Value] = [0] * gemm.N_SLOTS
        values: dict[int, Value] = {
            gemm.N_COLUMNS: Times(counts),
            gemm.WEIGHTS: pack.address,
            gemm.ACTS_AT: self._buffers.address(x),
            gemm.BIAS: self._vectors[bias] if bias is not None else 0,
            gemm.N_ROWS: weight.rows,
            gemm.N_GROUPS: weight.k if x.format == "f32" else weight.k // 32,
            gemm.STRIP_BYTES: pack.strip_bytes,
            gemm.TILE: tile,
            gemm.N_STRIPS: pack.n_strips,
            gemm.SCRATCH: self._scratch.address,
            gemm.SCRATCH_BYTES: self._scratch.step,
            gemm.LD_X: stride_of(x.width) if x.format == "f32" else 0,
        }
        for slot, value in values.items():
            args[slot // 8] = value
        return args

    def call(
        self, name: str, weight: Weight, x: Buffer, args: list[Value], counts: Counts, tile: int
    ) -> Call:
        """The call of one matrix."""
        pack = self._packs[weight]
        tasks = -(-pack.n_strips // tile)
        specs = bodies_of(weight.qtype, x.format)
        cost = Cost(
            weight.qtype.peak,
            weight.qtype.name,
            n_bytes=pack.n_strips * pack.strip_bytes,
            n_macs=weight.rows * weight.k,
            planes=2 if x.format == "a16" else 1,
        )
        return Call(name, "matmul", specs, tuple(args), tasks, counts, (cost,))
