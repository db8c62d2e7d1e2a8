"""The matmul of float weights (F32, F16, BF16): one fma per k in ascending order, x stays float32.

args   the slots of `quant.gemm`; ACTS_AT is x f32 [T][LD_X bytes], N_GROUPS is k;
       strips are [k][16] values
task   `tile` strips of 16 rows
does   out[column][row] = sum over k of weight * x (+ bias[row]) (+ resid[column][row])
exact  equals `quant.reference.matmul_bits`
reads  up to `SLACK` rows of x behind the last column
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.gemm import (
    ACTS_AT,
    LD_X,
    N_COLUMNS,
    N_GROUPS,
    N_STRIPS,
    SCRATCH,
    SCRATCH_BYTES,
    STRIP_BYTES,
    TILE,
    WEIGHTS,
    finish,
    prefetch_step,
)
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.values import Addr, F
from quant.types import get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words


@kernel(check="quant.checks.check_floats")
def floats(qtype: str, shape: str) -> KernelFn:
    """shape: "one" for a single column, "many" for the register tile of the instruction set."""
    t = get(qtype)
    name, line = t.name, 16 * t.bytes
    one = shape == "one"

    def tile_of(v: Words) -> tuple[int, int]:
        return (1, 1) if one else v.tile_float

    @macro
    def tile_strips(v: Words) -> int:
        return tile_of(v)[0]

    @macro
    def tile_columns(v: Words) -> int:
        return tile_of(v)[1]

    @macro
    def begin(v: Words) -> tuple[F, ...]:
        ns, nc = tile_of(v)
        return tuple(v.zero_f() for _ in range(ns * nc))

    def weight(v: Words, p: Addr) -> F:
        if name == "F32":
            return v.ld_f(p)
        return v.ld_f16(p) if name == "F16" else v.ld_bf16(p)

    def steps(
        v: Words, acc: tuple[F, ...], w: Addr, stride: int, x: Addr, ldx: int, n: int
    ) -> tuple[F, ...]:
        ns, nc = tile_of(v)
        for k in range(n):
            ws = [weight(v, w + s * stride + k * line) for s in range(ns)]
            prefetch_step(v, w, n * line, k, n)
            xs = [v.bc_f(x + c * ldx + 4 * k) for c in range(nc)]
            acc = tuple(v.fma(ws[s], xs[c], acc[s * nc + c]) for s in range(ns) for c in range(nc))
        return acc

    @macro
    def four(
        v: Words, acc: tuple[F, ...], w: Addr, stride: int, x: Addr, ldx: int
    ) -> tuple[F, ...]:
        return steps(v, acc, w, stride, x, ldx, 4)

    @macro
    def single(
        v: Words, acc: tuple[F, ...], w: Addr, stride: int, x: Addr, ldx: int
    ) -> tuple[F, ...]:
        return steps(v, acc, w, stride, x, ldx, 1)

    @macro
    def spill(v: Words, acc: tuple[F, ...], p: Addr) -> None:
        for k, x in enumerate(acc):
            v.st_f(p + 64 * k, x)

    def run(args: int, task: int, thread: int) -> None:
        n_columns, n_k = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, strip_bytes = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        ldx = v.ld_i64(args + LD_X)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        last = min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        ns, nc = tile_strips(), tile_columns()
        for s in range(task * tile, last, ns):
            left = min(ns, last - s)
            # A missing strip is computed from the first one and dropped.
            stride = strip_bytes if left == ns else 0
            for c in range(0, n_columns, nc):
                w = v.ld_i64(args + WEIGHTS) + s * strip_bytes
                x = v.ld_i64(args + ACTS_AT) + c * ldx
                acc = begin()
                for _ in range(n_k >> 2):
                    acc = four(acc, w, stride, x, ldx)
                    w += 4 * line
                    x += 16
                for _ in range(n_k & 3):
                    acc = single(acc, w, stride, x, ldx)
                    w += line
                    x += 4
                spill(acc, scratch)
                finish(args, scratch, nc * 64, s, left, c, min(nc, n_columns - c))

    return run
