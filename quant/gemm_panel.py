"""The matmul of packed integer weights for many columns.

A strip's codes are unpacked to bytes once, 256 values of k at a time, into a panel; then a register
tile of strips x columns sweeps over the panels from the first-level cache.
Arguments, task and promises: `quant.gemm`.

panel  SUB sub-scales, 2 x 128 bytes a group | D scales and MIN minima of the groups, f32[8][16] |
       D_SUPER, DM_SUPER d and -dmin, f32[16] | CODES a plane: 8 groups x 8 steps x 64 bytes;
       a second plane, where codes are split, lies where a second strip's panel would begin
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.formats.registers import codes_of, strip_block, unpack, unpack_scales6
from quant.gemm import (
    ACTS_AT,
    LD_OUT,
    MOST_COLUMNS,
    N_COLUMNS,
    N_GROUPS,
    N_STRIPS,
    OUT,
    PANEL_BYTES,
    PANELS,
    SCALES_BYTES,
    SCRATCH,
    SCRATCH_BYTES,
    SLACK,
    STARTS_BYTES,
    STRIP_BYTES,
    TILE,
    WEIGHTS,
    finish,
    group_values,
    sums_of,
)
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.layout import ACTS
from quant.simd.values import Addr, B, F, S
from quant.types import get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.dots import Code
    from quant.simd.words import Words

SUB, D, MIN, D_SUPER, DM_SUPER, CODES = 0, 2048, 2560, 3072, 3136, 3200  # bytes in a panel
PLANE = 4096  # bytes
EVEN = 12  # columns: a multiple of every register tile's


@kernel(check="quant.checks.check_panel")
def panel(qtype: str, fmt: str) -> KernelFn:
    """Many columns; a register tile of strips x columns that the instruction set names."""
    t, act = get(qtype), ACTS[fmt]
    block, facts, is_super = strip_block(t), codes_of(t), t.kind == "super"
    m_at, sub_at, group16, column = block.m, block.sub, t.group == 16, act.size
    a8, start_bytes = act.planes == 1, 64 * act.planes
    block_groups = 8 if is_super else 1  # groups in a block of the file
    size, codes_at, group_bytes = block.size, block.codes, block.group

    @macro
    def tile_strips(v: Words) -> int:
        return v.tile_of(facts, act.planes)[0]

    @macro
    def tile_columns(v: Words) -> int:
        return v.tile_of(facts, act.planes)[1]

    @macro
    def centred(v: Words) -> int:
        return v.planes_of(facts)[0][0].center

    @macro
    def start(v: Words, a: Addr, out: Addr) -> None:
        """A column's sums of a block -> what its accumulators start at."""
        bias = v.bias if is_super and a8 else 0
        for k in range(act.planes):
            sums = a + (act.sums(k) + sums_of(t))
            v.starts(sums, out + 64 * k, v.planes_of(facts)[0][0], bias)

    def st_sub(v: Words, at: Addr, x: S) -> None:
        if a8:
            v.st_scale(at, x)
        else:
            v.store(at, x)

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
            for plane, x in enumerate(v.halves(code(k), facts)):
                v.st_b(p + CODES + g * 512 + (plane * PLANE + 64 * k), x)
        if not is_super:
            v.st_f(p + D + g * 64, v.ld_f16(w))
            if m_at:
                v.st_f(p + MIN + g * 64, v.ld_f16(w + m_at))
        elif group16:
            for j in range(2):
                sub = v.ld_s8_s(w + sub_at + g * 32 + 16 * j)
                st_sub(v, p + SUB + g * 256 + 128 * j, sub)
        else:
            st_sub(v, p + SUB + g * 256, v.ld_u8_s(scratch + g * 16))
            v.st_f(p + MIN + g * 64, v.cvt(v.ld_u8_w(scratch + 128 + g * 16)))

    @macro
    def begin(v: Words, acc: Addr, stride: int) -> tuple[F, ...]:
        ns, nc = v.tile_of(facts, act.planes)
        if is_super:
            return tuple(v.zero_f() for _ in range(ns * nc))
        return tuple(v.ld_f(acc + s * stride + 64 * c) for s in range(ns) for c in range(nc))

    @macro
    def group(v: Words, x: tuple[F, ...], p: Addr, a: Addr, starts: Addr, g: int) -> tuple[F, ...]:
        ns, nc = v.tile_of(facts, act.planes)

        def plane(at: int) -> Code:
            def code(s: int, k: int) -> B:
                return v.ld_b(p + s * PANEL_BYTES + CODES + g * 512 + (at + 64 * k))

            return code

        def sub(s: int, j: int) -> S:
            at = p + s * PANEL_BYTES + SUB + g * 256 + 128 * j
            return v.ld_scale(at) if a8 else v.load(S, at)

        share = nc * column // 8  # each group asks for so much of the next tile's activations
        for k in range(-(-share // 64)):
            v.prefetch(a + (nc * column + 64 * k) + g * share)
        found = v.planes_of(facts)
        planes = [(plane(k * PLANE), *one) for k, one in enumerate(found)]
        ready = starts if found[0][0].center else None
        i = group_values(v, t, act, planes, ns, a, g, nc, sub if is_super else None, ready)
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

    @macro
    def soon(v: Words, out: Addr) -> None:
        """Results will be written here: have the lines, they lie a row of the output apart."""
        for s in range(v.tile_of(facts, act.planes)[0]):
            v.prefetch(out + 64 * s, level=2)

    @macro
    def fetch(v: Words, a: Addr) -> None:
        v.prefetch(a, level=2)

    def sweep(args: int, task: int, thread: int) -> None:
        """Column chunks of even size; in each all of k, all strips."""
        n_columns = v.ld_i64(args + N_COLUMNS)
        chunks = (n_columns + MOST_COLUMNS - 1) // MOST_COLUMNS
        most = (n_columns + chunks - 1) // chunks
        most = min(MOST_COLUMNS, (most + EVEN - 1) // EVEN * EVEN)
        for begin_at in range(0, n_columns, most):
            chunk(args, task, thread, begin_at, min(most, n_columns - begin_at))

    def chunk(args: int, task: int, thread: int, c0: int, n: int) -> None:
        n_columns, n_groups = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, strip_bytes = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        first, last = task * tile, min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        panels = scratch + SCALES_BYTES
        table = panels + PANELS * PANEL_BYTES
        accs = table + (n + SLACK) * STARTS_BYTES
        stride = (n + SLACK) * 64
        ld = v.ld_i64(args + LD_OUT)
        out = v.ld_i64(args + OUT) + c0 * ld
        n_tiles = (n + tile_columns() - 1) // tile_columns()
        lines = (8 // block_groups * size // 64 + n_tiles - 1) // n_tiles  # of a block, per tile
        zero = v.zero_f()
        for k in range((last - first) * (n + SLACK)):
            v.st_f(accs + k * 64, zero)
        a0 = v.ld_i64(args + ACTS_AT) + c0 * column
        for b in range(0, n_groups, 8):
            n_g = min(8, n_groups - b)
            if centred() != 0:
                for c in range(n):
                    start(a0 + c * column, table + c * start_bytes)
            for s in range(0, last - first, tile_strips()):
                for t in range(s, min(s + tile_strips(), last - first)):
                    w = v.ld_i64(args + WEIGHTS) + (first + t) * strip_bytes
                    w += b // block_groups * size
                    p = panels + (t - s) * PANEL_BYTES
                    head(w, scratch, p)
                    for g in range(n_g):
                        lay(w, scratch, p, g)
                        if not is_super:
                            w += size
                # What is laid next: other strips, their next block, or the next task's first one.
                ahead = v.ld_i64(args + WEIGHTS)
                if s + tile_strips() < last - first:
                    ahead += (first + s + tile_strips()) * strip_bytes + b // block_groups * size
                elif b + 8 < n_groups:
                    ahead += first * strip_bytes + (b + 8) // block_groups * size
                else:
                    ahead += (first + tile) * strip_bytes
                for c in range(0, n, tile_columns()):
                    for _ in range(lines):
                        for t in range(tile_strips()):
                            fetch(ahead + t * strip_bytes)
                        ahead += 64
                    a, acc = a0 + c * column, accs + s * stride + c * 64
                    x = begin(acc, stride)
                    for g in range(n_g):
                        x = group(x, panels, a, table + c * start_bytes, g)
                    end(x, panels, a, acc, stride)
                    if b + 8 >= n_groups:
                        at = out + (first + s) * 64 + c * ld
                        for _ in range(tile_columns()):
                            soon(at)
                            at += ld
            a0 += n_columns * column
        finish(args, accs, stride, first, last - first, c0, n)

    return sweep
