"""Argument rows of the matmul kernels and the memory they point to, for callers outside the tape.

The kernels of the matmul and of `quant.activations` take one address: of a row of int64 that names
arrays by address and sizes by number. A row does not own what it points to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quant import decoding_kernels, gemm
from quant.activations import BLOCKS, LDX, N_GROUPS, T, X
from quant.formats.layout import F32, U8
from quant.simd.layout import ACTS
from quant.types import Type

I64 = NDArray[np.int64]
Run = Callable[[int, int, int], None]

FORMATS = {"int8": "a8", "int16": "a16"}  # activations by precision
# Slots of a matmul's row that hold addresses.
ADDRESSES = (
    gemm.WEIGHTS,
    gemm.ACTS_AT,
    gemm.OUT,
    gemm.BIAS,
    gemm.RESID,
    gemm.SCRATCH,
)


class Sizes(NamedTuple):
    """A matmul without its addresses: type, columns, k, rows, strips per task."""

    t: Type
    n: int
    k: int
    rows: int
    tile: int

    @property
    def n_strips(self) -> int:
        """Strips of 16 rows."""
        return -(-self.rows // 16)

    @property
    def tasks(self) -> int:
        """Tasks of the row."""
        return -(-self.n_strips // self.tile)

    @property
    def strip_bytes(self) -> int:
        """Bytes of one strip."""
        return 16 * self.t.row_bytes(self.k)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of one thread; a panel's tile may take two strips where a task has one."""
        return gemm.scratch_bytes(self.n, self.tile + self.tile % 2)

    def row(self, weights: int, acts: int, out: int, ld_out: int, scratch: int) -> I64:
        """The arguments; bias and residual are none until they are set.

        acts: activation blocks, for float types x with rows of 4 k bytes. ld_out in bytes.
        """
        args = np.zeros(gemm.N_SLOTS, np.int64)
        for slot, value in (
            (gemm.N_COLUMNS, self.n),
            (gemm.WEIGHTS, weights),
            (gemm.ACTS_AT, acts),
            (gemm.OUT, out),
            (gemm.LD_OUT, ld_out),
            (gemm.N_ROWS, self.rows),
            (gemm.N_GROUPS, self.k if self.t.kind == "float" else self.k // 32),
            (gemm.STRIP_BYTES, self.strip_bytes),
            (gemm.TILE, self.tile),
            (gemm.N_STRIPS, self.n_strips),
            (gemm.SCRATCH, scratch),
            (gemm.SCRATCH_BYTES, self.scratch_bytes),
            (gemm.LD_X, 4 * self.k),
        ):
            args[slot // 8] = value
        return args


def quantize_row(x: F32, blocks: U8) -> I64:
    """Arguments of the quantizer for (n, k) float32 -> `act_bytes` of blocks; a task is a token."""
    args = np.zeros(5, np.int64)
    n, k = x.shape
    facts = {T: n, X: address(x), BLOCKS: address(blocks), N_GROUPS: k // 32, LDX: x.strides[0]}
    for slot, value in facts.items():
        args[slot // 8] = value
    return args


def decode_args(rows: NDArray[np.int32], source: U8, out: F32, t: Type, factor: float) -> I64:
    """Arguments that decode some rows of (rows, bytes) of a file into (T, n); a task is one."""
    args = np.zeros(len(decoding_kernels.SLOTS), np.int64)
    for slot, value in {
        decoding_kernels.ROWS: address(rows),
        decoding_kernels.SOURCE: address(source),
        decoding_kernels.ROW_BYTES: source.strides[0],
        decoding_kernels.OUT: address(out),
        decoding_kernels.OUT_STRIDE: out.strides[0],
        decoding_kernels.N_BLOCKS: out.shape[1] // t.values,
    }.items():
        args[slot // 8] = value
    args.view(np.float64)[decoding_kernels.FACTOR // 8] = factor
    return args


def act_bytes(n: int, k: int, fmt: str) -> int:
    """Bytes of the activation blocks of n columns, with what a register tile reads behind them."""
    return (-(-k // 256) * n + gemm.SLACK) * ACTS[fmt].size


def aligned(size_bytes: int, alignment: int = 64) -> U8:
    """Zeroed bytes at a multiple of `alignment`."""
    raw = np.zeros(size_bytes + alignment, np.uint8)
    start = -address(raw) % alignment
    return raw[start : start + size_bytes]


def address(a: NDArray[Any]) -> int:
    """Where an array begins."""
    return int(a.ctypes.data)


def run_all(run: Run, args: I64, tasks: int, thread: int = 0) -> None:
    """Every task of a row in this thread."""
    where = address(args)
    for task in range(tasks):
        run(where, task, thread)
