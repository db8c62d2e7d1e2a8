"""Matrices packed into strips of 16 rows: what the matmul kernels read.

A pack is a permutation of the file's bits (nothing is requantized), the same on every instruction
set, in memory that is aligned to huge pages where it is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from quant import jit, packing_kernels
from quant.calls import address, run_all
from quant.errors import QuantError
from quant.formats.layout import U8
from quant.link import callable_at
from quant.memory import allocate
from quant.types import Type, get

if TYPE_CHECKING:
    from quant.pool import Pool

ALIGNED = 4096  # where a pack of an arena begins


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """A packed matrix of `rows` rows of `k` values.

    data  (n_strips * strip_bytes,) bytes; rows are padded with zeros to whole strips
    """

    type: Type
    rows: int
    k: int
    n_strips: int
    strip_bytes: int
    data: U8

    @property
    def address(self) -> int:
        """Where the first strip begins."""
        return address(self.data)


def arena(sizes: Sequence[int]) -> list[U8]:
    """Memory for packs of these sizes: one block, in which they lie side by side in this order.

    The block is in huge pages, which a pack below 2 MB alone would not get (docs/performance.md).
    Where no block of that size is to be had, every pack gets memory of its own.

    Raises:
        QuantError: memory is short.
    """
    ends = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
    try:
        memory = allocate(ends[-1], huge=True)
    except QuantError:
        return [allocate(size, huge=True) for size in sizes]
    return [memory[start : start + size] for start, size in zip(ends, sizes, strict=False)]


def pack(blocks: U8, qtype: str | int | Type, pool: Pool | None = None) -> Pack:
    """Pack the rows of a weight matrix for `matmul`.

    Args:
        blocks: (rows, bytes per row) uint8, as in the file; a row's bytes side by side. Only read.
        qtype: a row of `TYPES`, its name or its GGML id.
        pool: threads to share the work; without one the calling thread does it.

    Raises:
        QuantError: the bytes are no rows of this type, or memory is short.
    """
    t = get(qtype)
    if blocks.ndim != 2 or blocks.dtype != np.uint8 or blocks.shape[1] % t.bytes:
        raise QuantError(
            f"these bytes are no rows of {t.name}",
            expected=f"uint8 (rows, a multiple of {t.bytes})",
            got=f"{blocks.dtype} {blocks.shape}",
        )
    rows, n_blocks = blocks.shape[0], blocks.shape[1] // t.bytes
    n_strips = -(-rows // 16)
    strip_bytes = n_blocks * 16 * t.bytes
    data = allocate(n_strips * strip_bytes, huge=True)
    fill([(data, blocks, t)], pool)
    return Pack(t, rows, n_blocks * t.values, n_strips, strip_bytes, data)


def fill(parts: Sequence[tuple[U8, U8, Type]], pool: Pool | None = None) -> None:
    """Pack rows of several matrices into memory that is there already, all in one native call.

    Args:
        parts: (data, blocks, type) each; blocks: (rows, bytes per row) uint8 of whole blocks, only
            read; data: (strips of these rows, side by side) uint8, all of it is written.
        pool: threads to share the work; without one the calling thread does it.
    """
    args = np.empty((len(parts), 4), np.int64)
    kernels = jit.load([_spec(t) for _, _, t in parts])
    kept: list[U8] = []  # copies of rows whose bytes do not stand side by side
    jobs = []
    for slots, (data, blocks, t) in zip(args, parts, strict=True):
        if blocks.strides[1] != 1:
            blocks = np.ascontiguousarray(blocks)
            kept.append(blocks)
        whole, n_blocks = len(blocks) // 16, blocks.shape[1] // t.bytes
        strip_bytes = n_blocks * 16 * t.bytes
        assert len(data) == -(-len(blocks) // 16) * strip_bytes, (len(data), blocks.shape, t.name)
        slots[:] = address(blocks), blocks.strides[0], address(data), n_blocks
        if whole and n_blocks:
            jobs.append((kernels[_spec(t)], slots, whole))
        if 16 * whole < len(blocks):
            rest = blocks[16 * whole :].reshape(-1, n_blocks, t.bytes)
            data[whole * strip_bytes :] = t.format.pack(rest).reshape(-1)
    if pool is None:
        for kernel, slots, strips in jobs:
            run_all(callable_at(kernel), slots, strips)
    elif jobs:
        from quant.pool import Row

        pool.tape([Row(kernel, address(slots), strips) for kernel, slots, strips in jobs]).run()


def _spec(t: Type) -> jit.Spec:
    return packing_kernels.pack_strip.spec(t.name)
