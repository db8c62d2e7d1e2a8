"""The memory between rows: buffers of a plan in shared slots, and the header of a flat batch.

Lines of f32 buffers are whole strips, and a few bytes longer where a power of two would put all
columns into the same cache sets. Behind every buffer lie `SLACK` more lines, which register tiles
may read and never use.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.graph.calls import Value
from gguf_runtime.graph.plan import Plan
from gguf_runtime.graph.rows import Buffer, Counts
from quant.gemm import SLACK
from quant.memory import allocate
from quant.simd.layout import ACTS

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


def stride_of(width: int) -> int:
    """Bytes from one line of an f32 buffer to the next."""
    size = -(-width // 16) * 64
    return size + 64 if size % 1024 == 0 else size


def buffer_bytes(buffer: Buffer, lines: int) -> int:
    """Memory of a buffer for so many lines, slack included."""
    if buffer.format in ACTS:
        size = ACTS[buffer.format].size
        return (-(-buffer.width // 256) * lines + SLACK) * size
    return (lines + SLACK) * stride_of(buffer.width)


def slot_bytes(plan: Plan, lines: Mapping[Counts, int]) -> list[int]:
    """Bytes of every slot of a plan."""
    sizes = [0] * plan.n_slots
    for b in plan.buffers:
        slot = plan.slots[b.id]
        sizes[slot] = max(sizes[slot], -(-buffer_bytes(b, lines[b.counts]) // 64) * 64)
    return sizes


class Header:
    """The flat batch as the kernels read it: what changes with every step, at fixed addresses.

    ids       i32 [n_batch]: the tokens
    pos, seq  i32 [n_batch]: position and sequence of each token
    outputs   i32 [n_batch]: tokens that want logits, ascending
    tables    per cache group i64 [n_sequences]: addresses of page tables
    flag      i64 [n_layer]: set when a key or value of the layer does not fit the cache type
    """

    def __init__(self, n_batch: int, n_sequences: int, n_groups: int, n_layer: int) -> None:
        self.ids: I32 = np.zeros(n_batch, np.int32)
        self.pos: I32 = np.zeros(n_batch, np.int32)
        self.seq: I32 = np.zeros(n_batch, np.int32)
        self.outputs: I32 = np.zeros(n_batch, np.int32)
        self.tables: list[I64] = [np.zeros(n_sequences, np.int64) for _ in range(n_groups)]
        self.flag: I64 = np.zeros(n_layer, np.int64)


class Buffers:
    """Addresses of a plan's buffers for at most `lines` tokens and outputs."""

    def __init__(self, plan: Plan, lines: Mapping[Counts, int]) -> None:
        self._plan = plan
        self._lines = dict(lines)
        sizes = slot_bytes(plan, lines)
        self._memory = allocate(sum(sizes), huge=True)
        starts = np.cumsum([0, *sizes])
        self._starts = [int(s) for s in starts]
        self._base = int(self._memory.ctypes.data)

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return len(self._memory)

    def address(self, buffer: Buffer) -> int:
        """Where a buffer begins."""
        return self._base + self._starts[self._plan.slots[buffer.id]]

    def lines(self, name: str, buffer: Buffer | None, first: int = 0) -> dict[str, Value]:
        """Slots `name` and `<name>_stride` of a kernel that uses an f32 buffer from value `first`."""
        if buffer is None:
            return {}
        return {name: self.address(buffer) + 4 * first, f"{name}_stride": stride_of(buffer.width)}

    def view(self, buffer: Buffer) -> F32:
        """An f32 buffer as (lines, width) float32; a view, written by every step."""
        assert buffer.format in ("f32", "spans"), buffer
        lines, stride = self._lines[buffer.counts], stride_of(buffer.width)
        start = self._starts[self._plan.slots[buffer.id]]
        whole = self._memory[start : start + lines * stride].view(np.float32)
        return whole.reshape(lines, stride // 4)[:, : buffer.width]
