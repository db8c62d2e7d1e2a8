"""Words on int32 lanes and on the bytes in them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.base import I32, I64, Base
from quant.simd.values import B, Const, M, W


class IntWords(Base):
    """Integer arithmetic; wraps like the machine's."""

    def zero_w(self) -> W:
        """0 in every lane."""
        return W([self.const("W", 0)] * self.P)

    def splat_w(self, x: int) -> W:
        """The low 32 bits of x in every lane."""
        return W([self.splat_reg(self.b.trunc(self.int_value(x), I32), self.lanes)] * self.P)

    def iota_w(self) -> W:
        """0, 1, .. 15."""
        n, t = self.lanes, self.reg_type("W")
        return self.each_p(W, lambda p: ir.Constant(t, [p * n + k for k in range(n)]))

    def add_w(self, x: W, y: W) -> W:
        """x + y."""
        return self.each(W, self.b.add, x, y)

    def sub_w(self, x: W, y: W) -> W:
        """x - y."""
        return self.each(W, self.b.sub, x, y)

    def and_w(self, x: W, y: W) -> W:
        """x & y."""
        return self.each(W, self.b.and_, x, y)

    def or_w(self, x: W, y: W) -> W:
        """x | y."""
        return self.each(W, self.b.or_, x, y)

    def shl_w(self, x: W, k: Const) -> W:
        """x << k."""
        return self._shift("shl", x, k)

    def lshr_w(self, x: W, k: Const) -> W:
        """x >> k with zeros from above."""
        return self._shift("lshr", x, k)

    def ashr_w(self, x: W, k: Const) -> W:
        """x >> k with the sign from above."""
        return self._shift("ashr", x, k)

    def _shift(self, op: str, x: W, k: int) -> W:
        by = self.const("W", k)
        return self.each(W, lambda r: getattr(self.b, op)(r, by), x)

    def lt_w(self, x: W, y: W) -> M:
        """x < y, signed."""
        return self.each(M, lambda a, c: self.b.icmp_signed("<", a, c), x, y)

    def select_w(self, m: M, x: W, y: W) -> W:
        """x where m, else y."""
        return self.each(W, self.b.select, m, x, y)

    def max_w(self, x: W, y: W) -> W:
        """The larger, signed."""
        return self.each(W, self._larger, x, y)

    def _larger(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    # ---- over the lanes ------------------------------------------------------------------------

    def hsum_w(self, x: W) -> int:
        """Sum of the lanes modulo 2**32, sign extended."""
        return self.int_of(self.b.sext(self.fold(x, self.b.add), I64))

    def hmax_w(self, x: W) -> int:
        """Largest lane, signed."""
        return self.int_of(self.b.sext(self.fold(x, self._larger), I64))

    # ---- bytes ---------------------------------------------------------------------------------

    def bits_b(self, x: B, shift: Const, mask: Const, left: Const = 0) -> B:
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

    def bytes_of_w(self, x: W) -> B:
        """The same bits as 4 bytes a lane."""
        return self.each(B, lambda r: self.b.bitcast(r, self.reg_type("B")), x)

    def or_b(self, x: B, y: B) -> B:
        """x | y."""
        return self.each(B, self.b.or_, x, y)

    def xor_b(self, x: B, mask: Const) -> B:
        """x ^ mask in every byte."""
        return self.each(B, lambda r: self.b.xor(r, self.const("B", mask)), x)
