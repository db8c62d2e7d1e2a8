"""The matmul of packed integer weights for few columns: codes go from the strip to registers.

Decode is bound by memory, so every strip is read once and nothing is written but results.
Arguments, task and promises: `quant.gemm`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from quant.formats.registers import codes_of, strip_block, unpack, unpack_scales6
from quant.gemm import (
    ACTS_AT,
    N_COLUMNS,
    N_GROUPS,
    N_STRIPS,
    SCRATCH,
    SCRATCH_BYTES,
    STRIP_BYTES,
    TILE,
    WEIGHTS,
    finish,
    group_values,
    prefetch_step,
)
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.layout import ACTS
from quant.simd.values import Addr, B, F, S
from quant.types import Type, get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.gemm import Plane
    from quant.simd.layout import Act
    from quant.simd.words import Words


Walk = Callable[[Addr, Addr, int, int, Addr], None]


@kernel(check="quant.checks.check_stream")
def stream(qtype: str, fmt: str, columns: str) -> KernelFn:
    """Activations `fmt` ("a8", "a16"). columns: "one" at a time, or "few", as many as fit."""
    t, act = get(qtype), ACTS[fmt]
    column = act.size  # a plain number to Numba
    if columns == "one":
        return _one(_walk(t, act, lambda v: 1), column)
    return _few(t, act, column)


def _one(walk: Walk, column: int) -> KernelFn:
    """A column at a time."""

    def one(args: int, task: int, thread: int) -> None:
        n_columns, n_groups = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, stride = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        last = min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        for strip in range(task * tile, last):
            w = v.ld_i64(args + WEIGHTS) + strip * stride
            a = v.ld_i64(args + ACTS_AT)
            for c in range(n_columns):
                walk(w, a, n_groups, n_columns * column, scratch)
                finish(args, scratch, 0, strip, 1, c, 1)
                a += column

    return one


def _few(t: Type, act: Act, column: int) -> KernelFn:
    """Several at a time: of the instruction set's widths the least that takes all that are left."""
    narrow, middle, wide = (_walk(t, act, partial(_width, k)) for k in range(3))

    @macro
    def widths(v: Words) -> tuple[int, int, int]:
        return v.widths

    def few(args: int, task: int, thread: int) -> None:
        n_columns, n_groups = v.ld_i64(args + N_COLUMNS), v.ld_i64(args + N_GROUPS)
        tile, stride = v.ld_i64(args + TILE), v.ld_i64(args + STRIP_BYTES)
        scratch = v.ld_i64(args + SCRATCH) + thread * v.ld_i64(args + SCRATCH_BYTES)
        last = min(task * tile + tile, v.ld_i64(args + N_STRIPS))
        for strip in range(task * tile, last):
            w = v.ld_i64(args + WEIGHTS) + strip * stride
            a = v.ld_i64(args + ACTS_AT)
            first = 0
            while first < n_columns:
                left = n_columns - first
                if left > widths()[1]:
                    wide(w, a, n_groups, n_columns * column, scratch)
                    done = widths()[2]
                elif left > widths()[0]:
                    middle(w, a, n_groups, n_columns * column, scratch)
                    done = widths()[1]
                else:
                    narrow(w, a, n_groups, n_columns * column, scratch)
                    done = widths()[0]
                finish(args, scratch, 0, strip, 1, first, min(done, left))
                first += done
                a += done * column

    return few


def _width(k: int, v: Words) -> int:
    return v.widths[k]


def _walk(t: Type, act: Act, width: Callable[[Words], int]) -> Walk:
    """(strip, activations, groups, bytes of a block's columns, scratch): `width` columns' sums.

    They are left at the beginning of the scratch.
    """
    block, column, group16 = strip_block(t), act.size, t.group == 16
    # Bound apart: what a kernel's loops read must be plain numbers to Numba.
    size, codes_at, group_bytes = block.size, block.codes, block.group
    m_at, sub_at = block.m, block.sub
    share = size // 8 if t.kind == "super" else size  # bytes of a block for each of its groups

    @macro
    def zeros(v: Words) -> tuple[F, ...]:
        return tuple(v.zero_f() for _ in range(width(v)))

    @macro
    def spill(v: Words, acc: tuple[F, ...], p: Addr) -> None:
        for c in range(width(v)):
            v.st_f(p + 64 * c, acc[c])

    def scaled(v: Words, x: S) -> S:
        return v.scale_of(x) if act.planes == 1 else x

    def stand(v: Words, p: Addr, group: Addr) -> tuple[Plane]:
        raw, facts = unpack(v, t, p), codes_of(t)

        def code(s: int, k: int) -> B:
            prefetch_step(v, group, share, k)
            return v.stand(raw(k), facts)

        return ((code, v.codes_of(facts), 1),)

    @macro
    def group_small(v: Words, acc: tuple[F, ...], w: Addr, a: Addr, g: int) -> tuple[F, ...]:
        n = width(v)
        i = group_values(v, t, act, stand(v, w + codes_at, w), 1, a, g, n, None)[0]
        d = v.ld_f16(w)
        m = v.ld_f16(w + m_at) if m_at else None
        out = []
        for c in range(n):
            table = a + c * column + g * 4
            x = v.fma(i[c], v.mul(d, v.bc_f(table + act.dx)), acc[c])
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
            if group16:
                return scaled(v, v.ld_s8_s(w + sub_at + g * 32 + 16 * j))
            return scaled(v, v.ld_u8_s(scratch + g * 16))

        n = width(v)
        code = stand(v, w + codes_at + g * group_bytes, w + g * share)
        i = group_values(v, t, act, code, 1, a, g, n, sub)[0]
        m = v.cvt(v.ld_u8_w(scratch + 128 + g * 16)) if m_at else None
        out = []
        for c in range(n):
            table = a + c * column + g * 4
            out.append(v.fma(i[c], v.bc_f(table + act.dx), tu[2 * c]))
            out.append(v.fma(m, v.bc_f(table + act.xs), tu[2 * c + 1]) if m else tu[2 * c + 1])
        return tuple(out)

    @macro
    def zeros2(v: Words) -> tuple[F, ...]:
        return tuple(v.zero_f() for _ in range(2 * width(v)))

    @macro
    def close(v: Words, acc: tuple[F, ...], tu: tuple[F, ...], w: Addr) -> tuple[F, ...]:
        d, n = v.ld_f16(w), width(v)
        out = [v.fma(tu[2 * c], d, acc[c]) for c in range(n)]
        if m_at:
            e = v.neg(v.ld_f16(w + m_at))
            out = [v.fma(tu[2 * c + 1], e, out[c]) for c in range(n)]
        return tuple(out)

    def walk_small(w: Addr, a: Addr, n_groups: int, step: int, scratch: Addr) -> None:
        acc = zeros()
        for b in range(0, n_groups, 8):
            for g in range(min(8, n_groups - b)):
                acc = group_small(acc, w, a, g)
                w += size
            a += step
        spill(acc, scratch)

    def walk_super(w: Addr, a: Addr, n_groups: int, step: int, scratch: Addr) -> None:
        acc = zeros()
        for _ in range(n_groups >> 3):
            scales(w, scratch)
            tu = zeros2()
            for g in range(8):
                tu = group_super(tu, w, scratch, a, g)
            acc = close(acc, tu, w)
            w += size
            a += step
        spill(acc, scratch)

    return walk_super if t.kind == "super" else walk_small
