"""Gated activations, into float32 and the activation format of the matmul that follows.

args   ARGS below, one 8-byte slot each: addresses and strides in bytes
       gate, up f32 [.., n] read (up not with "none") · out f32 [T, n] written, 0: none
       act blocks of n values written (a8, a16)
       rows i32 [T]: row of gate and up for task t, 0: row t
       out may be gate or up where rows is 0; nothing else aliases. n % 32 == 0 for a8, a16
task   one token
does   out = function(gate) * up, "none": out = gate; act = quantize(out)
       silu(x) = x / (1 + e^-x)
       gelu, the tanh form: x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
order  one value at a time, as quant.simd.elementary; the product with up rounded once
exact  equals `bits`; within RTOL * |out| of `reference` (float64), gelu within RTOL * |gate * up|
cost   8 n bytes read, 4 n (and 1.4 n of a8) written per token; about 40 operations per 16 values
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quant.activations import quantize_group
from quant.jit import kernel
from quant.simd import LANES, Addr, F, Macro, elementary, macro, v
from quant.simd.layout import ACTS, Act

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn
    from quant.simd.words import Words

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

ARGS = (
    "gate", "gate_stride", "up", "up_stride", "out", "out_stride",
    "act", "act_block", "act_column", "rows", "n",
)  # fmt: skip
(
    GATE, GATE_STRIDE, UP, UP_STRIDE, OUT, OUT_STRIDE,
    ACT, ACT_BLOCK, ACT_COLUMN, ROWS, N,
) = range(0, 8 * len(ARGS), 8)  # fmt: skip

FUNCTIONS = ("silu", "gelu", "none")
RTOL = 4e-7  # 2.5 ulp of silu, one rounding of the product


def reference(function: str, gate: F64, up: F64) -> F64:
    """function(gate) * up in float64; "none" gives the gate."""
    if function == "none":
        return gate
    slope = 2 * np.sqrt(2 / np.pi) * (1 + 0.044715 * gate * gate) if function == "gelu" else 1.0
    with np.errstate(over="ignore"):
        out: F64 = gate / (1 + np.exp(-gate * slope)) * up
    return out


def bits(function: str, gate: F32, up: F32) -> F32:
    """function(gate) * up as the kernel computes it."""
    if function == "none":
        return gate
    by = {"silu": elementary.silu_bits, "gelu": elementary.gelu_bits}[function]
    with np.errstate(all="ignore"):
        out: F32 = by(gate) * up
    return out


def gated(v: Words, function: str, gate: F, up: F) -> F:
    """function(gate) * up of one strip. To be called while a kernel is traced."""
    if function == "none":
        return gate
    by = {"silu": elementary.silu, "gelu": elementary.gelu}[function]
    return v.mul(by(v, gate), up)


def quantizing(function: str, act: Act) -> Macro[[Addr, Addr, Addr, int], None]:
    """Macro: 32 values at gate and up -> group g (0..7) of an activation block."""

    @macro
    def group(v: Words, gate: Addr, up: Addr, block: Addr, g: int) -> None:
        x0, x1 = (gated(v, function, v.ld_f(gate + k), v.ld_f(up + k)) for k in (0, 64))
        quantize_group(v, act, x0, x1, block, g)

    return group


def storing(function: str) -> Callable[[Addr, Addr, Addr, int], None]:
    """Helper of kernels: n values at gate and up -> n float32 at out."""

    @macro
    def strip(v: Words, gate: F, up: F) -> F:
        return gated(v, function, gate, up)

    def store(gate: Addr, up: Addr, out: Addr, n: int) -> None:
        for i in range(0, n - LANES + 1, LANES):
            o = 4 * i
            v.st_f(out + o, strip(v.ld_f(gate + o), v.ld_f(up + o)))
        left = n % LANES
        if left > 0:
            o = 4 * (n - left)
            x = strip(v.ld_f_tail(gate + o, left), v.ld_f_tail(up + o, left))
            v.st_f_tail(out + o, x, left)

    return store


@kernel(check="check")
def gate_act(function: str, fmt: str) -> KernelFn:
    """Kernel for function "silu", "gelu" or "none" and fmt "f32", "a8" or "a16"."""
    quantized, two = fmt != "f32", function != "none"
    group, store = quantizing(function, ACTS[fmt if quantized else "a8"]), storing(function)

    def gate_act(args: int, task: int, thread: int) -> None:
        n = v.ld_i64(args + N)
        rows = v.ld_i64(args + ROWS)
        row = task
        if rows != 0:
            row = v.ld_i32(rows + 4 * task)
        gate = v.ld_i64(args + GATE) + row * v.ld_i64(args + GATE_STRIDE)
        up = v.ld_i64(args + UP) + row * v.ld_i64(args + UP_STRIDE) if two else gate
        if quantized:
            block = v.ld_i64(args + ACT) + task * v.ld_i64(args + ACT_COLUMN)
            step = v.ld_i64(args + ACT_BLOCK)
            for g in range(n >> 5):
                group(gate + 128 * g, up + 128 * g, block + (g >> 3) * step, g & 7)
        out = v.ld_i64(args + OUT)
        if out != 0:
            store(gate, up, out + task * v.ld_i64(args + OUT_STRIDE), n)

    return gate_act


def check(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import checks

    return checks.check_act(run, *params)
