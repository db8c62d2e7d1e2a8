"""Rows of a matrix as it stands in a file -> float32: the embedding of every step.

args   SLOTS below, 8 bytes each: rows i32 [T] · source, the matrix · row_bytes · out f32 [T][n],
       `out_stride` bytes apart · n_blocks of a row (for float types: values) · factor, a float64
       nothing aliases
task   one of the T rows
does   out = factor * the decoded row
exact  equals the `decode` of the type's format, times factor: the same products and sums in float32
reads  nothing beyond the row
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.values import Addr, F, W
from quant.types import Type, get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words

SLOTS = ("rows", "source", "row_bytes", "out", "out_stride", "n_blocks", "factor")
ROWS, SOURCE, ROW_BYTES, OUT, OUT_STRIDE, N_BLOCKS, FACTOR = range(0, 8 * len(SLOTS), 8)

LANES = 16
# The width of a scalar in a kernel, to the type checker a plain float.
f32 = cast("Callable[[float], float]", np.float32)


def half(v: Words, a: Addr) -> F:
    """The half float at a in every lane, exact; no more than its two bytes are read."""
    h = v.splat_w(v.ld_u16(a))
    size = v.shl_w(v.and_w(h, v.splat_w(0x7FFF)), 13)
    bits = v.w_of_f(v.mul(v.f_of_w(size), v.splat_f(2.0**112)))
    special = v.lt_w(v.splat_w(0x0F7FFFFF), size)  # infinity and NaN
    bits = v.select_w(special, v.or_w(size, v.splat_w(0x7F800000)), bits)
    return v.f_of_w(v.or_w(bits, v.shl_w(v.and_w(h, v.splat_w(0x8000)), 16)))


def field(v: Words, x: W, shift: int, width: int) -> W:
    """`width` bits of every lane from bit `shift` on."""
    return v.and_w(v.lshr_w(x, shift) if shift else x, v.splat_w((1 << width) - 1))


def raised(v: Words, low: W, above: W, shift: int, width: int) -> W:
    """Codes from their four lower bits and a field of what lies above."""
    return v.or_w(low, v.shl_w(field(v, above, shift, width), 4))


def set_lanes(v: Words, bits: int) -> W:
    """16 in the lanes whose bit is set, else 0."""
    one = v.rint_w(v.f_of_w(v.shl_w(v.add_w(v.iota_w(), v.splat_w(127)), 23)))  # 2^lane
    hit = v.lt_w(v.zero_w(), v.and_w(one, v.splat_w(bits)))
    return v.select_w(hit, v.splat_w(16), v.zero_w())


def small(v: Words, t: Type, p: Addr) -> list[F]:
    """d | m, if any | 32 bits above the nibbles, if any | 16 bytes of nibbles or 32 of codes."""
    d, at = half(v, p), 4 if t.minimum else 2
    if t.bits == 8:
        codes = [v.ld_s8_w(p + (at + 16 * e)) for e in range(2)]
    else:
        q = v.ld_u8_w(p + (at + (4 if t.bits == 5 else 0)))
        codes = [field(v, q, 4 * e, 4) for e in range(2)]
        if t.bits == 5:
            above = [set_lanes(v, v.ld_u16(p + (at + 2 * e))) for e in range(2)]
            codes = [v.or_w(c, a) for c, a in zip(codes, above, strict=True)]
    out = [v.mul(d, centred(v, t, c)) for c in codes]
    return [v.add(x, half(v, p + 2)) for x in out] if t.minimum else out


def with_minima(v: Words, t: Type, p: Addr) -> list[F]:
    """Q4_K, Q5_K: d, dmin | 12 bytes of scales | 32 of bits above, if any | 128 of nibbles."""
    d, dmin = half(v, p), half(v, p + 2)
    low, mid, top = (
        [v.splat_w(v.ld_u8(p + (4 + 4 * part + k))) for k in range(4)] for part in range(3)
    )
    sub = [field(v, x, 0, 6) for x in low]
    sub += [raised(v, field(v, x, 0, 4), y, 6, 2) for x, y in zip(top, low, strict=True)]
    minima = [field(v, x, 0, 6) for x in mid]
    minima += [raised(v, field(v, x, 4, 4), y, 6, 2) for x, y in zip(top, mid, strict=True)]
    out = []
    for g in range(8):
        scale, m = v.mul(d, v.cvt(sub[g])), v.mul(dmin, v.cvt(minima[g]))
        for e in range(2):
            at = (48 if t.bits == 5 else 16) + 32 * (g // 2) + 16 * e
            code = field(v, v.ld_u8_w(p + at), 4 * (g % 2), 4)
            if t.bits == 5:
                code = raised(v, code, v.ld_u8_w(p + (16 + 16 * e)), g, 1)
            out.append(v.sub(v.mul(scale, v.cvt(code)), m))
    return out


def six_bits(v: Words, t: Type, p: Addr) -> list[F]:
    """Q6_K: 128 bytes of nibbles | 64 of pairs of bits above | 16 scales | d."""
    d, out = half(v, p + (t.bytes - 2)), []
    for piece in range(16):
        h, n, e = piece // 8, piece // 2 % 4, piece % 2
        low = field(v, v.ld_u8_w(p + (64 * h + 32 * (n % 2) + 16 * e)), 4 * (n // 2), 4)
        code = raised(v, low, v.ld_u8_w(p + (128 + 32 * h + 16 * e)), 2 * n, 2)
        sub = v.ashr_w(v.shl_w(v.splat_w(v.ld_u8(p + (192 + piece))), 24), 24)
        out.append(v.mul(v.mul(d, v.cvt(sub)), centred(v, t, code)))
    return out


def centred(v: Words, t: Type, code: W) -> F:
    """Codes as float32, less what they are centred by."""
    x = v.cvt(code)
    return v.sub(x, v.splat_f(float(t.center))) if t.center else x


@kernel(check="quant.checks.check_decode")
def decode_row(qtype: str) -> KernelFn:
    """A row of blocks, or of plain values."""
    t = get(qtype)
    size, values = t.bytes, t.values

    @macro
    def block(v: Words, p: Addr, out: Addr, factor: float) -> None:
        read = small if t.kind == "small" else with_minima if t.minimum else six_bits
        by = v.splat_f(factor)
        for k, x in enumerate(read(v, t, p)):
            v.st_f(out + 64 * k, v.mul(x, by))

    @macro
    def sixteen(v: Words, p: Addr, out: Addr, factor: float) -> None:
        x = v.ld_f(p) if size == 4 else v.ld_f16(p) if t.name == "F16" else v.ld_bf16(p)
        v.st_f(out, v.mul(x, v.splat_f(factor)))

    @macro
    def one(v: Words, p: Addr, out: Addr, factor: float) -> None:
        if size == 4:
            x = v.bc_f(p)
        elif t.name == "F16":
            x = half(v, p)
        else:
            x = v.f_of_w(v.shl_w(v.splat_w(v.ld_u16(p)), 16))
        v.st_f_tail(out, v.mul(x, v.splat_f(factor)), 1)

    def decode_blocks(args: int, task: int, thread: int) -> None:
        row = v.ld_i32(v.ld_i64(args + ROWS) + 4 * task)
        p = v.ld_i64(args + SOURCE) + row * v.ld_i64(args + ROW_BYTES)
        out = v.ld_i64(args + OUT) + task * v.ld_i64(args + OUT_STRIDE)
        factor = f32(v.ld_f64(args + FACTOR))
        for _ in range(v.ld_i64(args + N_BLOCKS)):
            block(p, out, factor)
            p += size
            out += 4 * values

    def decode_values(args: int, task: int, thread: int) -> None:
        row = v.ld_i32(v.ld_i64(args + ROWS) + 4 * task)
        p = v.ld_i64(args + SOURCE) + row * v.ld_i64(args + ROW_BYTES)
        out = v.ld_i64(args + OUT) + task * v.ld_i64(args + OUT_STRIDE)
        factor, n = f32(v.ld_f64(args + FACTOR)), v.ld_i64(args + N_BLOCKS)
        for _ in range(n // LANES):
            sixteen(p, out, factor)
            p += LANES * size
            out += 4 * LANES
        for _ in range(n % LANES):
            one(p, out, factor)
            p += size
            out += 4

    return decode_values if t.kind == "float" else decode_blocks
