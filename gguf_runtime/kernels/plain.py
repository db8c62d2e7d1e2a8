"""Rows of float32 added, scaled, copied and gathered: what a plan without fusions also needs.

args   ARGS below, one 8-byte slot each: addresses and strides in bytes, `factor` a float64
       a, b f32 [.., n] read · out f32 [T, n] written, may be a or b
       rows i32 [T]: row of a for task t, 0: row t
task   one token
does   add: out = a + b · scale: out = a * factor · copy: out = a
exact  equals `bits`: one IEEE operation per value
cost   reads 8 n bytes, writes 4 n per token
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.lanes import f32
from quant.jit import kernel
from quant.simd import LANES, F, macro, v

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words

F32 = NDArray[np.float32]

ARGS = ("a", "a_stride", "b", "b_stride", "out", "out_stride", "rows", "n", "factor")
A, A_STRIDE, B, B_STRIDE, OUT, OUT_STRIDE, ROWS, N, FACTOR = range(0, 8 * len(ARGS), 8)


def bits(op: str, a: F32, b: F32 | None = None, factor: float = 1.0) -> F32:
    """(T, n) float32 -> (T, n)."""
    if op == "add" and b is not None:
        return np.asarray(a + b, np.float32)
    return np.asarray(a * np.float32(factor), np.float32) if op == "scale" else a.copy()


@kernel
def rowwise(op: str) -> KernelFn:
    """Kernel for op "add", "scale" or "copy"."""

    @macro
    def combine(v: Words, x: F, y: F, factor: float) -> F:
        if op == "add":
            return v.add(x, y)
        return v.mul(x, v.splat_f(factor)) if op == "scale" else x

    def rowwise(args: int, task: int, thread: int) -> None:
        n, factor = v.ld_i64(args + N), f32(v.ld_f64(args + FACTOR))
        rows = v.ld_i64(args + ROWS)
        row = task
        if rows != 0:
            row = v.ld_i32(rows + 4 * task)
        a = v.ld_i64(args + A) + row * v.ld_i64(args + A_STRIDE)
        b = v.ld_i64(args + B) + task * v.ld_i64(args + B_STRIDE)
        if v.ld_i64(args + B) == 0:
            b = a
        out = v.ld_i64(args + OUT) + task * v.ld_i64(args + OUT_STRIDE)
        for i in range(0, n - LANES + 1, LANES):
            o = 4 * i
            v.st_f(out + o, combine(v.ld_f(a + o), v.ld_f(b + o), factor))
        left = n % LANES
        if left > 0:
            o = 4 * (n - left)
            v.st_f_tail(
                out + o, combine(v.ld_f_tail(a + o, left), v.ld_f_tail(b + o, left), factor), left
            )

    return rowwise
