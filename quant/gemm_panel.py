"""The matmul of packed integer weights for many columns.

A strip's codes are unpacked to bytes once, 256 values of k at a time, into a panel; then a register
tile of strips x columns sweeps over the panels from the first-level cache.
Arguments, task and promises: `quant.gemm`.

panel  CODES 8 groups x 8 steps x 64 bytes | SUB sub-scales, 2 x 64 bytes a group |
       D scales and MIN minima of the groups, f32[8][16] | D_SUPER, DM_SUPER d and -dmin, f32[16]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.formats.registers import codes_of, strip_block, unpack, unpack_scales6
from quant.gemm import (
    ACTS_AT,
    N_COLUMNS,
    N_GROUPS,
    N_STRIPS,
    PANEL_BYTES,
    SCALES_BYTES,
    SCRATCH,
    SCRATCH_BYTES,
    SLACK,
    STRIP_BYTES,
    TILE,
    WEIGHTS,
    finish,
    group_values,
)
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.layout import ACTS
from quant.simd.values import Addr, B, F, S
from quant.types import get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words

CODES, SUB, D, MIN, D_SUPER, DM_SUPER = 0, 4096, 5120, 5632, 6144, 6208  # bytes in a panel


@kernel(check="quant.checks.check_panel")
def panel(qtype: str, fmt: str) -> KernelFn:
    """Many columns; a register tile of strips x columns that the instruction set names."""
    t, act = get(qtype), ACTS[fmt]
    block, facts, is_super = strip_block(t), codes_of(t), t.kind == "super"
    m_at, sub_at, group16, column = block.m, block.sub, t.group == 16, act.size
    block_groups = 8 if is_super else 1  # groups in a block of the file
    size, codes_at, group_bytes = block.size, block.codes, block.group

    @macro
    def tile_strips(v: Words) -> int:
        return v.tile_of(facts, act.planes)[0]

    @macro
    def tile_columns(v: Words) -> int:
        return v.tile_of(facts, act.planes)[1]

    @macro
    def head(v: Words, w: Addr, scratch: Addr, p: Addr) -> None:
        """What a block of 256 has once: d, -dmin, K scales."""
        if is_super:
            v.st_f(p + D_SUPER, v.ld_f16(w))
            if m_at:
                v.st_f(p + DM_SUPER, v.neg(v.ld_f16(w + m_at)))
                unpack_scales6(v, w + sub_at, scratch)

    @macro
    def lay(v: Words, w: Addr, scratch: Addr, p: Addr, g: int) -> None:
        """Group g of a strip into the panel at p."""
        source = w + codes_at + g * group_bytes if is_super else w + codes_at
        code = unpack(v, t, source)
        for k in range(8):
            v.st_b(p + CODES + g * 512 + 64 * k, v.stand(code(k), facts))
        if not is_super:
            v.st_f(p + D + g * 64, v.ld_f16(w))
            if m_at:
                v.st_f(p + MIN + g * 64, v.ld_f16(w + m_at))
        elif group16:
            for j in range(2):
                v.st_s(p + SUB + g * 128 + 64 * j, v.ld_s8_s(w + sub_at + g * 32 + 16 * j))
        else:
            v.st_s(p + SUB + g * 128, v.ld_u8_s(scratch + g * 16))
            v.st_f(p + MIN + g * 64, v.cvt(v.ld_u8_w(scratch + 128 + g * 16)))

    @macro
    def begin(v: Words, acc: Addr, stride: int) -> tuple[F, ...]:
        ns, nc = v.tile_of(facts, act.planes)
        if is_super:
            return tuple(v.zero_f() for _ in range(ns * nc))
        return tuple(v.ld_f(acc + s * stride + 64 * c) for s in range(ns) for c in range(nc))

    @macro
    def group(v: Words, x: tuple[F, ...], p: Addr, a: Addr, g: int) -> tuple[F, ...]:
        ns, nc = v.tile_of(facts, act.planes)

        def code(s: int, k: int) -> B:
            return v.ld_b(p + s * PANEL_BYTES + CODES + g * 512 + 64 * k)

        def sub(s: int, j: int) -> S:
            return v.ld_s(p + s * PANEL_BYTES + SUB + g * 128 + 64 * j)

        i = group_values(v, t, act, code, ns, a, g, nc, sub if is_super else None)
        out = []
        for s in range(ns):
            strip = p + s * PANEL_BYTES + g * 64
            d = None if is_super else v.ld_f(strip + D)
            m = v.ld_f(strip + MIN) if m_at and not is_super else None
            for c in range(nc):
                table = a + c * column + g * 4
                dx = v.bc_f(table + act.dx)
                y = v.fma(i[s][c], v.mul(d, dx) if d else dx, x[s * nc + c])
                out.append(v.fma(m, v.bc_f(table + act.xs), y) if m else y)
        return tuple(out)

    @macro
    def end(v: Words, x: tuple[F, ...], p: Addr, a: Addr, acc: Addr, stride: int) -> None:
        ns, nc = v.tile_of(facts, act.planes)
        for s in range(ns):
            strip, at = p + s * PANEL_BYTES, acc + s * stride
            y = list(x[s * nc : s * nc + nc])
            if is_super:
                d = v.ld_f(strip + D_SUPER)
                y = [v.fma(y[c], d, v.ld_f(at + 64 * c)) for c in range(nc)]
            if is_super and m_at:
                u = [v.zero_f() for _ in range(nc)]
                for g in range(8):
                    m = v.ld_f(strip + MIN + g * 64)
                    u = [v.fma(m, v.bc_f(a + c * column + act.xs + g * 4), u[c]) for c in range(nc)]
                e = v.ld_f(strip + DM_SUPER)
                y = [v.fma(u[c], e, y[c]) for c in range(nc)]
            for c in range(nc):
                v.st_f(at + 64 * c, y[c])

    def sweep(args: int, task: int, thread: int) -> None:
        n_columns, n_groups = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, strip_bytes = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        first, last = task * tile, min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        panels = scratch + SCALES_BYTES
        accs = panels + tile * PANEL_BYTES
        stride = (n_columns + SLACK) * 64
        zero = v.zero_f()
        for k in range((last - first) * (n_columns + SLACK)):
            v.st_f(accs + k * 64, zero)
        a0 = v.ld_i64(args + ACTS_AT)
        for b in range(0, n_groups, 8):
            n_g = min(8, n_groups - b)
            for s in range(last - first):
                w = v.ld_i64(args + WEIGHTS) + (first + s) * strip_bytes + b // block_groups * size
                p = panels + s * PANEL_BYTES
                head(w, scratch, p)
                for g in range(n_g):
                    lay(w, scratch, p, g)
                    if not is_super:
                        w += size
            for c in range(0, n_columns, tile_columns()):
                a = a0 + c * column
                for s in range(0, last - first, tile_strips()):
                    p, acc = panels + s * PANEL_BYTES, accs + s * stride + c * 64
                    x = begin(acc, stride)
                    for g in range(n_g):
                        x = group(x, p, a, g)
                    end(x, p, a, acc, stride)
            a0 += n_columns * column
        for s in range(last - first):
            finish(args, accs + s * stride, 64, first + s, 0, n_columns)

    return sweep
