"""Matrices packed into strips of 16 rows: what the matmul kernels read.

A pack is a permutation of the file's bits (nothing is requantized), the same on every instruction
set, in memory that is aligned to huge pages where it is large.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    fill(data, blocks, t, pool)
    return Pack(t, rows, n_blocks * t.values, n_strips, strip_bytes, data)


def fill(data: U8, blocks: U8, t: Type, pool: Pool | None = None) -> None:
    """Pack rows into memory that is there already.

    Args:
        data: (strips of these rows, side by side) uint8; all of it is written.
        blocks: (rows, bytes per row) uint8, whole blocks of type `t`; only read.
    """
    if blocks.strides[1] != 1:
        blocks = np.ascontiguousarray(blocks)
    rows, n_blocks = blocks.shape[0], blocks.shape[1] // t.bytes
    n_strips, whole = -(-rows // 16), rows // 16
    strip_bytes = n_blocks * 16 * t.bytes
    assert len(data) == n_strips * strip_bytes, (len(data), n_strips, strip_bytes)
    if whole and n_blocks:
        _run(blocks, t, data, whole, n_blocks, pool)
    if whole < n_strips:
        rest = blocks[16 * whole :].reshape(-1, n_blocks, t.bytes)
        data[whole * strip_bytes :] = t.format.pack(rest).reshape(-1)


def _run(blocks: U8, t: Type, data: U8, strips: int, n_blocks: int, pool: Pool | None) -> None:
    spec = packing_kernels.pack_strip.spec(t.name)
    kernel = jit.load([spec])[spec]
    args = np.array([address(blocks), blocks.strides[0], address(data), n_blocks], np.int64)
    if pool is None:
        run_all(callable_at(kernel), args, strips)
        return
    from quant.pool import Row

    pool.tape([Row(kernel, address(args), strips)]).run()
