"""Gate, up, activation function and quantization in one row: results stay in the thread's cache.

args   ARGS below, one 8-byte slot each
       gate_fn, up_fn: matmul kernels; gate_args, up_args: their arguments, whose output is replaced
       tile: rows of one task, even strips of 16; n_rows of each matrix; n_columns T
       out f32 [T, n_rows] written, 0: none · act blocks of n_rows values written (a8, a16)
       scratch: scratch_bytes() per thread, `scratch_step` apart. n_rows % 32 == 0 for a8, a16
task   `tile` rows of both matrices, all columns
does   a copy of each matmul's arguments is pointed at the thread's scratch and its kernel is called
       for the same task; then out = function(gate) * up, act = quantize(out), as act.py
exact  the bits of the two matmuls followed by act.py: no order changes
cost   the matmuls' own; 8 bytes per row and column through the second-level cache
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf_runtime.kernels.act import quantizing, storing
from quant import gemm
from quant.jit import kernel
from quant.simd import Addr, v
from quant.simd.layout import ACTS

if TYPE_CHECKING:
    from quant.compile import KernelFn

ARGS = (
    "gate_fn", "gate_args", "up_fn", "up_args", "tile", "n_rows", "n_columns", "out", "out_stride",
    "act", "act_block", "act_column", "scratch", "scratch_step",
)  # fmt: skip
(
    GATE_FN, GATE_ARGS, UP_FN, UP_ARGS, TILE, N_ROWS, N_COLUMNS, OUT, OUT_STRIDE,
    ACT, ACT_BLOCK, ACT_COLUMN, SCRATCH, SCRATCH_STEP,
) = range(0, 8 * len(ARGS), 8)  # fmt: skip

MATMUL_ARGS = 8 * gemm.N_SLOTS  # a copy for each of the two matmuls stands first in the scratch


def scratch_bytes(n_columns: int, tile: int) -> int:
    """Scratch of one thread for up to `n_columns` columns and `tile` rows a task."""
    return 2 * MATMUL_ARGS + 2 * n_columns * tile * 4


def point(source: Addr, to: Addr, out: Addr, ld: int) -> None:
    """A copy of a matmul's arguments with another output."""
    for i in range(0, 8 * gemm.N_SLOTS, 8):
        v.st_i64(to + i, v.ld_i64(source + i))
    v.st_i64(to + gemm.OUT, out)
    v.st_i64(to + gemm.LD_OUT, ld)


@kernel
def gated_matmul(function: str, fmt: str) -> KernelFn:
    """Kernel for function "silu" or "gelu" and fmt "f32", "a8" or "a16"."""
    quantized = fmt != "f32"
    group, store = quantizing(function, ACTS[fmt if quantized else "a8"]), storing(function)

    def gated_matmul(args: int, task: int, thread: int) -> None:
        tile, n_columns = v.ld_i64(args + TILE), v.ld_i64(args + N_COLUMNS)
        first = task * tile
        n = min(tile, v.ld_i64(args + N_ROWS) - first)
        own = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_STEP)
        ld = tile * 4
        gate = own + 2 * MATMUL_ARGS
        up = gate + n_columns * ld
        point(v.ld_i64(args + GATE_ARGS), own, gate - first * 4, ld)
        point(v.ld_i64(args + UP_ARGS), own + MATMUL_ARGS, up - first * 4, ld)
        v.call(v.ld_i64(args + GATE_FN), own, task, thread)
        v.call(v.ld_i64(args + UP_FN), own + MATMUL_ARGS, task, thread)
        out, out_stride = v.ld_i64(args + OUT), v.ld_i64(args + OUT_STRIDE)
        block, step = v.ld_i64(args + ACT), v.ld_i64(args + ACT_BLOCK)
        for _ in range(n_columns):
            if quantized:
                for k in range(n >> 5):
                    g = (first >> 5) + k
                    group(gate + 128 * k, up + 128 * k, block + (g >> 3) * step, g & 7)
                block += v.ld_i64(args + ACT_COLUMN)
            if out != 0:
                store(gate, up, out + first * 4, n)
                out += out_stride
            gate += ld
            up += ld

    return gated_matmul
