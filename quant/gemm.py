"""The matmul of packed weights and quantized activations: bodies shared by all integer types.

    stream   one to four columns at a time straight from the strip: decode is bound by memory, so codes are unpacked in
             registers and every strip is read once
    panel    many columns: a strip's codes are unpacked to bytes once, 256 values of k at a time, then a register tile
             of strips x columns sweeps over them from the first-level cache

args   slots of 8 bytes, named below; nothing aliases but `resid` and `out`, which may be the same rows
task   `tile` strips of 16 rows
does   out[column][row] = sum over k of weight * activation (+ bias[row]) (+ resid[column][row]); design part 4
exact  equals `quant.reference.matmul_bits` for every number of columns: one order of operations per output value
reads  activation blocks of up to `SLACK` columns behind the last one (their results are dropped), so buffers carry
       that much slack; packs are never read past their end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quant.formats.registers import codes_of, strip_block, unpack, unpack_scales6
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.values import Addr, B, F, S
from quant.types import Type, get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.layout import Act
    from quant.simd.words import Words

# ---- argument slots, in bytes; the float bodies (`quant.gemm_float`) share them ------------------------------------------
N_COLUMNS, WEIGHTS, ACTS_AT, OUT, LD_OUT, BIAS, RESID, LD_RESID = range(0, 64, 8)
N_ROWS, N_GROUPS, STRIP_BYTES, TILE, N_STRIPS, SCRATCH, SCRATCH_BYTES, LD_X = range(64, 128, 8)
N_SLOTS = 16

SLACK = 8  # columns that a register tile may read behind the last one
PREFETCH = 1536  # bytes ahead of the strip being read

# ---- scratch of one thread: K scales, then a panel per strip of the task, then the accumulators ----------------------
SCALES_BYTES = 256
CODES, SUB, D, MIN, D_SUPER, DM_SUPER, PANEL_BYTES = 0, 4096, 5120, 5632, 6144, 6208, 6272


def scratch_bytes(n_columns: int, tile: int) -> int:
    """Scratch that one thread needs for up to `n_columns` columns and `tile` strips a task."""
    return SCALES_BYTES + tile * (PANEL_BYTES + (n_columns + SLACK) * 64)


def finish(args: int, acc: int, stride: int, strip: int, first: int, n: int) -> None:
    """Accumulators [n columns] at acc -> out, with bias and residual; the last strip may be ragged."""
    rows = v.ld_i64(args + N_ROWS) - strip * 16
    ld, ldr = v.ld_i64(args + LD_OUT), v.ld_i64(args + LD_RESID)
    out = v.ld_i64(args + OUT) + strip * 64 + first * ld
    bias, resid = v.ld_i64(args + BIAS), v.ld_i64(args + RESID)
    if resid != 0:
        resid += strip * 64 + first * ldr
    if rows < 16:
        for _ in range(n):
            x = v.ld_f(acc)
            if bias != 0:
                x = v.add(x, v.ld_f_tail(bias + strip * 64, rows))
            if resid != 0:
                x = v.add(x, v.ld_f_tail(resid, rows))
                resid += ldr
            v.st_f_tail(out, x, rows)
            acc += stride
            out += ld
        return
    for _ in range(n):
        x = v.ld_f(acc)
        if bias != 0:
            x = v.add(x, v.ld_f(bias + strip * 64))
        if resid != 0:
            x = v.add(x, v.ld_f(resid))
            resid += ldr
        v.st_f(out, x)
        acc += stride
        out += ld


def group_ints(
    v: Words,
    t: Type,
    act: Act,
    code: Any,
    n_strips: int,
    a: Addr,
    g: int,
    n_columns: int,
    scales: Any,
) -> list[list[Any]]:
    """i of one group (int32) for each strip and column; a16 as 128 times the high plane plus the low one."""
    codes = v.codes_of(codes_of(t))
    sums = [act.sums(p) + (g * 8 if t.group == 16 else g * 4 + 64) for p in range(act.planes)]
    columns = [
        (a + c * act.size + g * 32 + 256 * p, a + c * act.size + sums[p])
        for c in range(n_columns)
        for p in range(act.planes)
    ]
    out = v.group_dots(code, n_strips, columns, codes, scales)
    if act.planes == 1:
        return out
    return [[v.add_w(v.shl_w(r[2 * c], 7), r[2 * c + 1]) for c in range(n_columns)] for r in out]


def _acts(fmt: str) -> Act:
    from quant.simd.layout import ACTS

    return ACTS[fmt]


@kernel(uses=["quant.formats.registers", "quant.types"], check="quant.checks.check_stream")
def stream(qtype: str, fmt: str, n: int) -> KernelFn:
    """`n` columns at a time from the strip, for activations `fmt` ("a8" or "a16")."""
    t, act = get(qtype), _acts(fmt)
    block = strip_block(t)
    size, codes_at, group_bytes, m_at, sub_at = (
        block.size,
        block.codes,
        block.group,
        block.m,
        block.sub,
    )
    column, group16 = act.size, t.group == 16

    @macro
    def zeros(v: Words) -> tuple[F, ...]:
        return tuple(v.zero_f() for _ in range(n))

    @macro
    def spill(v: Words, acc: tuple[F, ...], p: Addr) -> None:
        for c in range(n):
            v.st_f(p + 64 * c, acc[c])

    def stand(v: Words, p: Addr) -> Any:
        raw, facts = unpack(v, t, p), codes_of(t)

        def code(s: int, k: int) -> B:
            if (
                k % 2 == 0
            ):  # one line of 64 bytes serves two steps or fewer: prefetches stay evenly spread
                v.prefetch(p + (PREFETCH + 32 * k))
            return v.stand(raw(k), facts)

        return code

    @macro
    def group_small(v: Words, acc: tuple[F, ...], w: Addr, a: Addr, g: int) -> tuple[F, ...]:
        i = group_ints(v, t, act, stand(v, w + codes_at), 1, a, g, n, None)[0]
        d = v.ld_f16(w)
        m = v.ld_f16(w + m_at) if m_at else None
        out = []
        for c in range(n):
            table = a + c * column + g * 4
            x = v.fma(v.cvt(i[c]), v.mul(d, v.bc_f(table + act.dx)), acc[c])
            out.append(v.fma(m, v.bc_f(table + act.xs), x) if m else x)
        return tuple(out)

    @macro
    def scales(v: Words, w: Addr, scratch: Addr) -> None:
        if m_at:
            unpack_scales6(v, w + sub_at, scratch)

    @macro
    def group_super(
        v: Words, tu: tuple[F, ...], w: Addr, scratch: Addr, a: Addr, g: int
    ) -> tuple[F, ...]:
        def sub(s: int, j: int) -> S:
            return (
                v.ld_s8_s(w + sub_at + g * 32 + 16 * j) if group16 else v.ld_u8_s(scratch + g * 16)
            )

        i = group_ints(v, t, act, stand(v, w + codes_at + g * group_bytes), 1, a, g, n, sub)[0]
        m = v.cvt(v.ld_u8_w(scratch + 128 + g * 16)) if m_at else None
        out = []
        for c in range(n):
            table = a + c * column + g * 4
            out.append(v.fma(v.cvt(i[c]), v.bc_f(table + act.dx), tu[2 * c]))
            out.append(v.fma(m, v.bc_f(table + act.xs), tu[2 * c + 1]) if m else tu[2 * c + 1])
        return tuple(out)

    @macro
    def zeros2(v: Words) -> tuple[F, ...]:
        return tuple(v.zero_f() for _ in range(2 * n))

    @macro
    def close(v: Words, acc: tuple[F, ...], tu: tuple[F, ...], w: Addr) -> tuple[F, ...]:
        d = v.ld_f16(w)
        out = [v.fma(tu[2 * c], d, acc[c]) for c in range(n)]
        if m_at:
            e = v.neg(v.ld_f16(w + m_at))
            out = [v.fma(tu[2 * c + 1], e, out[c]) for c in range(n)]
        return tuple(out)

    def small(args: int, task: int, thread: int) -> None:
        n_columns, n_groups = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, stride = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        last = min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        for strip in range(task * tile, last):
            for first in range(0, n_columns, n):
                w = v.ld_i64(args + WEIGHTS) + strip * stride
                a = v.ld_i64(args + ACTS_AT) + first * column
                acc = zeros()
                for b in range(0, n_groups, 8):
                    for g in range(min(8, n_groups - b)):
                        acc = group_small(acc, w, a, g)
                        w += size
                    a += n_columns * column
                spill(acc, scratch)
                finish(args, scratch, 64, strip, first, min(n, n_columns - first))

    def super_(args: int, task: int, thread: int) -> None:
        n_columns, n_blocks = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS) >> 3
        tile, stride = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        last = min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        for strip in range(task * tile, last):
            for first in range(0, n_columns, n):
                w = v.ld_i64(args + WEIGHTS) + strip * stride
                a = v.ld_i64(args + ACTS_AT) + first * column
                acc = zeros()
                for _ in range(n_blocks):
                    scales(w, scratch)
                    tu = zeros2()
                    for g in range(8):
                        tu = group_super(tu, w, scratch, a, g)
                    acc = close(acc, tu, w)
                    w += size
                    a += n_columns * column
                spill(acc, scratch)
                finish(args, scratch, 64, strip, first, min(n, n_columns - first))

    return super_ if t.kind == "super" else small


@kernel(uses=["quant.formats.registers", "quant.types"], check="quant.checks.check_panel")
def panel(qtype: str, fmt: str) -> KernelFn:
    """Many columns; a register tile of strips x columns that the instruction set names."""
    t, act = get(qtype), _acts(fmt)
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

        i = group_ints(v, t, act, code, ns, a, g, nc, sub if is_super else None)
        out = []
        for s in range(ns):
            strip = p + s * PANEL_BYTES + g * 64
            d = None if is_super else v.ld_f(strip + D)
            m = v.ld_f(strip + MIN) if m_at and not is_super else None
            for c in range(nc):
                table = a + c * column + g * 4
                dx = v.bc_f(table + act.dx)
                y = v.fma(v.cvt(i[s][c]), v.mul(d, dx) if d else dx, x[s * nc + c])
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
