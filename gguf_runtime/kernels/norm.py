"""RMS norm, after an optional normed residual, into float32 and the activation format of a matmul.

args   ARGS below, one 8-byte slot each: addresses and strides in bytes, `eps` a float64
       x f32 [.., n] read · y f32 [T, n], y_w f32 [n] read and x_out f32 [T, n] written ("post" only)
       w f32 [n] read · out f32 [T, n] written, 0: none · act blocks of n values written (a8, a16)
       rows i32 [T]: row of x, y and x_out for task t, 0: row t
       x_out may be x, out may be x or y; nothing else aliases. n % 32 == 0 for a8, a16
task   one token
does   post: x = x + y / sqrt(mean(y * y) + eps) * y_w, stored in x_out
       out = x / sqrt(mean(x * x) + eps) * w; act = quantize(out)
order  sums as in lanes.py; inv = 1 / sqrt(sum / n + eps), IEEE; (x * inv) * w, each product rounded
exact  equals `bits` on every instruction set; within RTOL * |out| of `reference` (float64), plus the
       rounding of x where that cancels
cost   reads 8 n bytes, writes 4 n (and 1.4 n of a8) per token; three passes in cache
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.lanes import f32, inverse_rms, inverse_rms_bits
from quant.activations import quantize_group
from quant.jit import kernel
from quant.simd import LANES, Addr, F, macro, v
from quant.simd.layout import ACTS

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn
    from quant.simd.words import Words

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

ARGS = (
    "x", "x_stride", "y", "y_stride", "y_w", "x_out", "w", "out", "out_stride",
    "act", "act_block", "act_column", "rows", "n", "eps",
)  # fmt: skip
(
    X, X_STRIDE, Y, Y_STRIDE, Y_W, X_OUT, W, OUT, OUT_STRIDE,
    ACT, ACT_BLOCK, ACT_COLUMN, ROWS, N, EPS,
) = range(0, 8 * len(ARGS), 8)  # fmt: skip

RTOL = 2e-6  # sums of 16 lanes of n / 16 rounded squares, four more roundings


def reference(x: F64, w: F64, eps: float, y: F64 | None = None, y_w: F64 | None = None) -> F64:
    """(T, n) -> (T, n) in float64; with y the residual comes first (its sum is not returned)."""
    if y is not None and y_w is not None:
        x = residual(x, y, y_w, eps)
    out: F64 = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w
    return out


def residual(x: F64, y: F64, y_w: F64, eps: float) -> F64:
    """The x_out of "post" in float64."""
    out: F64 = x + y / np.sqrt(np.mean(y * y, -1, keepdims=True) + eps) * y_w
    return out


def bits(x: F32, w: F32, eps: float, y: F32 | None = None, y_w: F32 | None = None) -> F32:
    """(T, n) float32 -> the out of the kernel."""
    if y is not None and y_w is not None:
        x = residual_bits(x, y, y_w, eps)
    with np.errstate(all="ignore"):
        out: F32 = (x * inverse_rms_bits(x, eps)[..., None]) * w
    return out


def residual_bits(x: F32, y: F32, y_w: F32, eps: float) -> F32:
    """(T, n) float32 -> the x_out of the kernel."""
    with np.errstate(all="ignore"):
        out: F32 = x + (y * inverse_rms_bits(y, eps)[..., None]) * y_w
    return out


@macro
def scaled(v: Words, a: Addr, w: Addr, inv: float) -> F:
    """16 values times inv times 16 weights."""
    return v.mul(v.mul(v.ld_f(a), v.splat_f(inv)), v.ld_f(w))


@macro
def scaled_tail(v: Words, a: Addr, w: Addr, inv: float, n: int) -> F:
    """The same for the first n lanes."""
    return v.mul(v.mul(v.ld_f_tail(a, n), v.splat_f(inv)), v.ld_f_tail(w, n))


def add_normed(x: Addr, y: Addr, y_w: Addr, out: Addr, n: int, inv: float) -> None:
    """out = x + y * inv * y_w."""
    for i in range(0, n - LANES + 1, LANES):
        o = 4 * i
        v.st_f(out + o, v.add(v.ld_f(x + o), scaled(y + o, y_w + o, inv)))
    left = n % LANES
    if left > 0:
        o = 4 * (n - left)
        t = v.add(v.ld_f_tail(x + o, left), scaled_tail(y + o, y_w + o, inv, left))
        v.st_f_tail(out + o, t, left)


def write_normed(x: Addr, w: Addr, out: Addr, n: int, inv: float) -> None:
    """out = x * inv * w."""
    for i in range(0, n - LANES + 1, LANES):
        o = 4 * i
        v.st_f(out + o, scaled(x + o, w + o, inv))
    left = n % LANES
    if left > 0:
        o = 4 * (n - left)
        v.st_f_tail(out + o, scaled_tail(x + o, w + o, inv, left), left)


@kernel(check="check")
def rms_norm(form: str, fmt: str) -> KernelFn:
    """Kernel for form "plain" or "post" and fmt "f32", "a8" or "a16"."""
    post, quantized = form == "post", fmt != "f32"
    act = ACTS[fmt if quantized else "a8"]

    @macro
    def group(v: Words, x: Addr, w: Addr, inv: float, block: Addr, g: int) -> None:
        x0 = scaled.fn(v, x, w, inv)
        x1 = scaled.fn(v, x + 64, w + 64, inv)
        quantize_group(v, act, x0, x1, block, g)

    def rms_norm(args: int, task: int, thread: int) -> None:
        n = v.ld_i64(args + N)
        eps = f32(v.ld_f64(args + EPS))
        rows = v.ld_i64(args + ROWS)
        row = task
        if rows != 0:
            row = v.ld_i32(rows + 4 * task)
        x = v.ld_i64(args + X) + row * v.ld_i64(args + X_STRIDE)
        w = v.ld_i64(args + W)
        if post:
            y = v.ld_i64(args + Y) + row * v.ld_i64(args + Y_STRIDE)
            x_out = v.ld_i64(args + X_OUT) + row * v.ld_i64(args + X_STRIDE)
            add_normed(x, y, v.ld_i64(args + Y_W), x_out, n, inverse_rms(y, n, eps))
            x = x_out
        inv = inverse_rms(x, n, eps)
        if quantized:
            block = v.ld_i64(args + ACT) + task * v.ld_i64(args + ACT_COLUMN)
            step = v.ld_i64(args + ACT_BLOCK)
            for g in range(n >> 5):
                group(x + 128 * g, w + 128 * g, inv, block + (g >> 3) * step, g & 7)
        out = v.ld_i64(args + OUT)
        if out != 0:
            write_normed(x, w, out + task * v.ld_i64(args + OUT_STRIDE), n, inv)

    return rms_norm


def check(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import checks

    return checks.check_norm(run, *params)
