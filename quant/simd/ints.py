"""Words on int32 lanes and on the bytes and int16 in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from quant.simd.values import B, H, Int, M, W

if TYPE_CHECKING:
    from quant.simd.words import Words as Self
else:
    Self = Any

I32, I64 = ir.IntType(32), ir.IntType(64)
Const = int  # a shift count or mask that is known while the kernel is compiled


class IntWords:
    """Integer arithmetic; wraps like the machine's."""

    def zero_w(self: Self) -> W:
        return W([self.const("W", 0)] * self.P)

    def splat_w(self: Self, x: int) -> W:
        """The low 32 bits of x in every lane."""
        return W([self.splat_reg(self.b.trunc(self.int_value(x), I32), self.lanes)] * self.P)

    def iota_w(self: Self) -> W:
        """0, 1, .. 15."""
        n = self.lanes
        return self.each_p(
            W, lambda p: ir.Constant(self.reg_type("W"), [p * n + k for k in range(n)])
        )

    def add_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.add, x, y)

    def sub_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.sub, x, y)

    def mul_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.mul, x, y)

    def and_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.and_, x, y)

    def or_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.or_, x, y)

    def xor_w(self: Self, x: W, y: W) -> W:
        return self.each(W, self.b.xor, x, y)

    def _shift(self: Self, op: str, x: W, k: int) -> W:
        by = self.const("W", k)
        return self.each(W, lambda r: getattr(self.b, op)(r, by), x)

    def shl_w(self: Self, x: W, k: Const) -> W:
        return self._shift("shl", x, k)

    def lshr_w(self: Self, x: W, k: Const) -> W:
        return self._shift("lshr", x, k)

    def ashr_w(self: Self, x: W, k: Const) -> W:
        return self._shift("ashr", x, k)

    def lt_w(self: Self, x: W, y: W) -> M:
        return self.each(M, lambda a, c: self.b.icmp_signed("<", a, c), x, y)

    def eq_w(self: Self, x: W, y: W) -> M:
        return self.each(M, lambda a, c: self.b.icmp_signed("==", a, c), x, y)

    def select_w(self: Self, m: M, x: W, y: W) -> W:
        """x where m, else y."""
        return self.each(W, self.b.select, m, x, y)

    def hsum_w(self: Self, x: W) -> int:
        """Sum of the lanes modulo 2**32, sign extended."""
        return self.int_of(self.b.sext(self.fold(x, self.b.add), I64))

    def hmax_w(self: Self, x: W) -> int:
        """Largest lane, signed."""

        def larger(a: Any, c: Any) -> Any:
            return self.b.select(self.b.icmp_signed(">", a, c), a, c)

        return self.int_of(self.b.sext(self.fold(x, larger), I64))

    def max_w(self: Self, x: W, y: W) -> W:
        """The larger lane, signed."""
        return self.each(W, lambda a, c: self.b.select(self.b.icmp_signed(">", a, c), a, c), x, y)

    def int_of(self: Self, x: Any) -> Any:
        return Int(self, x)

    # ---- bit fields of bytes ---------------------------------------------------------------------------------------

    def bits_b(self: Self, x: B, shift: Const, mask: Const, left: Const = 0) -> B:
        """((x >> shift) & mask) << left in every byte: one shift of 16-bit lanes and one mask."""

        def field(r: Any) -> Any:
            h = self.b.bitcast(r, self.reg_type("H"))
            s = shift - left
            if s > 0:
                h = self.b.lshr(h, self.const("H", s))
            elif s < 0:
                h = self.b.shl(h, self.const("H", -s))
            return self.b.and_(self.b.bitcast(h, self.reg_type("B")), self.const("B", mask << left))

        return self.each(B, field, x)

    def bytes_of_w(self: Self, x: W) -> B:
        """The same bits as 4 bytes a lane."""
        return self.each(B, lambda r: self.b.bitcast(r, self.reg_type("B")), x)

    def or_b(self: Self, x: B, y: B) -> B:
        return self.each(B, self.b.or_, x, y)

    def xor_b(self: Self, x: B, mask: Const) -> B:
        return self.each(B, lambda r: self.b.xor(r, self.const("B", mask)), x)

    def zero_h(self: Self) -> H:
        return H([self.const("H", 0)] * self.P)
