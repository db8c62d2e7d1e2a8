"""Quantized activations: float32 rows -> blocks of int8 planes with one scale per 32 values.

args   0 T · 8 x f32 [T][ldx] read · 16 blocks written · 24 n_groups (k / 32) · 32 ldx in bytes
       task: one token
blocks [k block of 256][T columns][size]: a column of a k block is one block, so the stride from one
       k block to the next is T * size
does   per 32 values: amax = max|y|; s = amax / limit (IEEE division); below 2^-126 s = 0, q = 0;
       else q = round_even(y / s); xs = f32(sum q) * s.
       NaN or infinity in a group: q = 0 under s = NaN or infinity.
exact  equals `quant.reference.quantize_activations`
cost   4 k bytes read, 1.6 k (a8) or 3 k (a16) written per token
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.layout import ACTS, SUM32
from quant.simd.values import Addr, F, W

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.layout import Act
    from quant.simd.words import Words

T, X, BLOCKS, N_GROUPS, LDX = range(0, 40, 8)  # argument slots, in bytes

INF_BITS = 0x7F800000


def quantize_group(v: Words, act: Act, x0: F, x1: F, block: Addr, g: int) -> None:
    """32 values (x0 then x1, in the order of k) -> group g (0..7) of an activation block.

    Writes codes, dx, xs and the sums of that group. To be called while a kernel is traced.
    """
    amax_bits = v.hmax_w(v.max_w(v.w_of_f(v.abs(x0)), v.w_of_f(v.abs(x1))))
    # One lane is divided, not sixteen: a division of a whole register takes as long as three others.
    lane = v.b.fdiv(v.float_value(v.f32_bits(amax_bits)), v.float_value(float(act.limit)))
    s = v.splat_f(v.flt_of(lane))
    zero, one = v.zero_f(), v.splat_f(1.0)
    normal = v.ge(s, v.splat_f(2.0**-126))
    finite = v.lt_w(v.splat_w(amax_bits), v.splat_w(INF_BITS))
    s = v.select(normal, s, v.select(finite, zero, s))
    by = v.select(normal, s, one)
    none = v.zero_w()
    q0, q1 = (v.select_w(finite, v.rint_w(v.div(x, by)), none) for x in (x0, x1))
    dx = v.lane_f(s, 0)
    v.st_f32(block + act.dx + g * 4, dx)
    codes, total = block + g * 32, 0
    for plane, (p0, p1) in enumerate(planes(v, act, q0, q1)):
        v.st_w_s8(codes + 256 * plane, p0)
        v.st_w_s8(codes + 256 * plane + 16, p1)
        sums = block + act.sums(plane)
        v.store_sums(p0, p1, sums, g)
        of_plane = sum_at(v, sums + SUM32 + g * 4)
        total = of_plane if plane == 0 else total * 128 + of_plane
    v.st_f32(block + act.xs + g * 4, v.lane_f(v.mul(v.cvt(v.splat_w(total)), s), 0))


def sum_at(v: Words, a: Addr) -> int:
    """A sum of 32 codes that `store_sums` has stored; two int16 on AVX2."""
    x = v.ld_i32(a)
    return (x << 48 >> 48) + (x >> 16) if v.isa == "avx2" else x


def planes(v: Words, act: Act, q0: W, q1: W) -> list[tuple[W, W]]:
    """Codes as int8 planes: themselves, or q = 128 h + l with h in +-127, l in -64..63."""
    if act.planes == 1:
        return [(q0, q1)]
    high = [v.ashr_w(v.add_w(q, v.splat_w(64)), 7) for q in (q0, q1)]
    low = [v.sub_w(q, v.shl_w(h, 7)) for q, h in zip((q0, q1), high, strict=True)]
    return [(high[0], high[1]), (low[0], low[1])]


@kernel(check="quant.checks.check_quantize")
def quantize(fmt: str) -> KernelFn:
    """Quantize whole rows; fmt "a8" or "a16"."""
    act = ACTS[fmt]
    size = act.size

    @macro
    def group(v: Words, x: Addr, block: Addr, g: int) -> None:
        quantize_group(v, act, v.ld_f(x), v.ld_f(x + 64), block, g)

    def quantize_row(args: int, task: int, thread: int) -> None:
        step = v.ld_i64(args + T) * size
        x = v.ld_i64(args + X) + task * v.ld_i64(args + LDX)
        block = v.ld_i64(args + BLOCKS) + task * size
        for k in range(v.ld_i64(args + N_GROUPS)):
            group(x, block, k & 7)
            x += 128
            if k & 7 == 7:
                block += step

    return quantize_row
