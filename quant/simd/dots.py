"""Integer dot products of codes and activations: the heart of the matmul.

A *group* is 32 values of k: 8 steps of 4, a byte each. `group_dots` gives, for every strip and column of a register
tile, the exact int32  i = sum over sub-groups of  sub_scale * sum (code - center) * q.  How the sum is formed is the
instruction set's own (int16 pairs that start at the centring correction on AVX2, int32 elsewhere); i is the same.
The layout of an activation block stands in `quant.simd.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from quant.simd.layout import ACTS, SUM16, SUM32, Act, Codes
from quant.simd.values import A, Addr, B, S, W

if TYPE_CHECKING:
    from quant.simd.words import Words as Self
else:
    Self = Any

I8, I16, I32 = (ir.IntType(n) for n in (8, 16, 32))

__all__ = ["ACTS", "Act", "Codes", "DotWords"]


class DotWords:
    """`group_dots` over four primitives that an instruction set may replace."""

    # 8-bit codes stand signed in the strip; VNNI wants them unsigned (+128).
    flip_signed = False

    def codes_of(self: Self, codes: Codes) -> Codes:
        """The codes as `dot` takes them on this instruction set."""
        if codes.signed and self.flip_signed:
            return Codes(codes.bits, 128, False, codes.group)
        return codes

    def tile_of(self: Self, codes: Codes, planes: int) -> tuple[int, int]:
        """Register tile (strips, columns) of a panel; two planes double the accumulators of a column."""
        strips, columns = self.tile
        return strips, max(1, columns // planes)

    def stand(self: Self, x: B, codes: Codes) -> B:
        """Bytes from the strip -> bytes as `dot` takes them."""
        return self.xor_b(x, 128) if codes.signed and self.flip_signed else x

    def acc_start(self: Self, codes: Codes, sums: Addr, n: int) -> A:
        """Accumulator at -center * sum of the activations of this sub-group."""
        if not codes.center:
            return A([self.const("A", 0)] * self.P)
        x = self.b.mul(self.load_raw(sums, I32), ir.Constant(I32, -codes.center))
        return A([self.splat_reg(x, self.lanes)] * self.P)

    def dot(self: Self, acc: A, u: B, x: B, codes: Codes) -> A:
        """acc + sum of 4 products in each lane; codes u, activations x in +-127."""
        return self.each(A, lambda a, c, q: self.keep(self.dot_reg(a, c, q, codes)), acc, u, x)

    def dot_reg(self: Self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """Portable: products of bytes as int16 (255 * 127 fits), widened before they are added."""
        hu, hx = (self.b.bitcast(r, self.reg_type("H")) for r in (u, x))
        eight = self.const("H", 8)
        if codes.signed:
            ue, uo = self.b.ashr(self.b.shl(hu, eight), eight), self.b.ashr(hu, eight)
        else:
            ue, uo = self.b.and_(hu, self.const("H", 255)), self.b.lshr(hu, eight)
        xe, xo = self.b.ashr(self.b.shl(hx, eight), eight), self.b.ashr(hx, eight)
        for p in (self.b.mul(ue, xe), self.b.mul(uo, xo)):
            w = self.b.bitcast(p, self.reg_type("W"))
            low = self.b.ashr(self.b.shl(w, self.const("W", 16)), self.const("W", 16))
            acc = self.b.add(acc, self.b.add(low, self.b.ashr(w, self.const("W", 16))))
        return acc

    def steps_held(self: Self, codes: Codes) -> int:
        """Steps of 4 that an accumulator can hold before it must be taken out."""
        return 8

    def acc_w(self: Self, acc: A, scale: S | None, codes: Codes) -> W:
        """The accumulator times the sub-scale, int32."""
        if scale is None:
            return W(acc.regs)
        return self.each(W, self.b.mul, acc, scale)

    def scale_reg(self: Self, x: Any, signed: bool) -> Any:
        """16 / P bytes -> one register of sub-scales."""
        return (self.b.sext if signed else self.b.zext)(x, self.reg_type("S"))

    def group_dots(
        self: Self,
        code: Callable[[int, int], B],
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        scales: Callable[[int, int], S] | None = None,
    ) -> list[list[W]]:
        """i of one group for each strip and column.

        code(strip, step) -> bytes as `dot` takes them; columns: (address of the 32 activations, address of their
        sums: per sub-group of 16 if codes.group is 16); scales(strip, sub-group) -> S. codes: from `codes_of`.
        """
        n_sub = codes.group // 4
        hold = min(n_sub, self.steps_held(codes))
        none = A([])
        acc = [[none for _ in columns] for _ in range(n_strips)]
        out: list[list[W]] = [[W([]) for _ in columns] for _ in range(n_strips)]
        for k in range(8):
            u = [code(s, k) for s in range(n_strips)]
            first, last = k % hold == 0, k % hold == hold - 1
            plain = Codes(
                codes.bits, codes.center if k % n_sub == 0 else 0, codes.signed, codes.group
            )
            for c, (q, sums) in enumerate(columns):
                x = self.bc_b(q + 4 * k)
                for s in range(n_strips):
                    if first:
                        acc[s][c] = self.acc_start(plain, sums + k // n_sub * 4, codes.group)
                    acc[s][c] = self.dot(acc[s][c], u[s], x, codes)
            if not last:
                continue
            for s in range(n_strips):
                scale = scales(s, k // n_sub) if scales else None
                for c in range(len(columns)):
                    w = self.acc_w(acc[s][c], scale, codes)
                    out[s][c] = w if k < hold else self.add_w(out[s][c], w)
        return out

    def store_sums(self: Self, w0: W, w1: W, sums: Addr, g: int) -> None:
        """Sums of one plane of a group (two strips of 16 codes) into the tables at `sums`; g: group in the block."""
        s0, s1 = self.hsum_w(w0), self.hsum_w(w1)
        self.st_i32(sums + SUM16 + g * 8, s0)
        self.st_i32(sums + SUM16 + g * 8 + 4, s1)
        self.st_i32(sums + SUM32 + g * 4, s0 + s1)
