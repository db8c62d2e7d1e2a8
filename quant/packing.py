"""Matrices packed into strips of 16 rows: what the matmul kernels read.

The pack is a permutation of the file's bytes (nothing is requantized), the same on every instruction set, in memory that
is aligned to huge pages where it is large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quant.errors import QuantError
from quant.formats.layout import U8
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
        return int(self.data.ctypes.data)


def pack_into(blocks: U8, qtype: str | int | Type, pool: Pool | None = None) -> Pack:
    """(rows, bytes per row) blocks of a file -> a pack; QuantError where the bytes do not fit the type."""
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
    data[:] = t.format.pack(blocks.reshape(rows, n_blocks, t.bytes)).reshape(-1)
    return Pack(t, rows, n_blocks * t.values, n_strips, strip_bytes, data)
