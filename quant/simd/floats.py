"""Words on 16 float32 lanes. Each is the IEEE operation it names: no contraction, no estimates."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.base import I32, I64, Base
from quant.simd.values import LANES, F, M, W

ROUNDER = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits


class FloatWords(Base):
    """Arithmetic, comparisons, conversions, reductions."""

    def zero_f(self) -> F:
        """0 in every lane."""
        return F([self.const("F", 0.0)] * self.P)

    def splat_f(self, x: float) -> F:
        """A float32 scalar in every lane."""
        return F([self.splat_reg(self.float_value(x), self.lanes)] * self.P)

    def add(self, x: F, y: F) -> F:
        """x + y."""
        return self.each(F, self.b.fadd, x, y)

    def sub(self, x: F, y: F) -> F:
        """x - y."""
        return self.each(F, self.b.fsub, x, y)

    def mul(self, x: F, y: F) -> F:
        """x * y."""
        return self.each(F, self.b.fmul, x, y)

    def div(self, x: F, y: F) -> F:
        """x / y."""
        return self.each(F, self.b.fdiv, x, y)

    def neg(self, x: F) -> F:
        """x with the other sign, NaN and 0 too."""
        return self.each(F, self.b.fneg, x)

    def abs(self, x: F) -> F:
        """x without its sign, NaN too."""
        return self._llvm("fabs", x)

    def fma(self, x: F, y: F, z: F) -> F:
        """x * y + z with one rounding."""
        return self._llvm("fma", x, y, z)

    def _llvm(self, name: str, *values: F) -> F:
        t = self.reg_type("F")
        full = f"llvm.{name}.v{self.lanes}f32"
        return self.each(F, lambda *regs: self.intrinsic(full, t, list(regs)), *values)

    def max(self, x: F, y: F) -> F:
        """x where x > y, else y: NaN in x gives y, NaN in y gives y."""
        return self.select(self.gt(x, y), x, y)

    def min(self, x: F, y: F) -> F:
        """x where x < y, else y: NaN in x gives y, NaN in y gives y."""
        return self.select(self.lt(x, y), x, y)

    # ---- conditions: false where a lane is NaN -------------------------------------------------

    def _cmp(self, op: str, x: F, y: F) -> M:
        return self.each(M, lambda a, c: self.b.fcmp_ordered(op, a, c), x, y)

    def lt(self, x: F, y: F) -> M:
        """x < y."""
        return self._cmp("<", x, y)

    def gt(self, x: F, y: F) -> M:
        """x > y."""
        return self._cmp(">", x, y)

    def ge(self, x: F, y: F) -> M:
        """x >= y."""
        return self._cmp(">=", x, y)

    def eq(self, x: F, y: F) -> M:
        """x == y."""
        return self._cmp("==", x, y)

    def select(self, m: M, x: F, y: F) -> F:
        """x where m, else y."""
        return self.each(F, self.b.select, m, x, y)

    def mask_bits(self, m: M) -> int:
        """The conditions as bits, lane 0 lowest."""
        return self.int_of(self.b.zext(self.b.bitcast(self.join(m), ir.IntType(LANES)), I64))

    # ---- to and from integers ------------------------------------------------------------------

    def cvt(self, x: W) -> F:
        """int32 -> float32, nearest even."""
        return self.each(F, lambda r: self.b.sitofp(r, self.reg_type("F")), x)

    def rint_w(self, x: F) -> W:
        """Nearest even as int32, for |x| < 2**22; no rounding mode is read."""
        k = self.const("F", ROUNDER)
        t = self.reg_type("W")
        one = self.b.bitcast(k, t)
        return self.each(W, lambda r: self.b.sub(self.b.bitcast(self.b.fadd(r, k), t), one), x)

    def f_of_w(self, x: W) -> F:
        """The same bits as float32."""
        return self.each(F, lambda r: self.b.bitcast(r, self.reg_type("F")), x)

    def w_of_f(self, x: F) -> W:
        """The same bits as int32."""
        return self.each(W, lambda r: self.b.bitcast(r, self.reg_type("W")), x)

    # ---- over the lanes ------------------------------------------------------------------------

    def hsum(self, x: F) -> float:
        """Sum of the lanes by the fixed tree, float32."""
        return self.flt_of(self.fold(x, self.b.fadd))

    def hmax(self, x: F) -> float:
        """Largest lane by the fixed tree (see `max` for NaN), float32."""

        def larger(a: Any, c: Any) -> Any:
            return self.b.select(self.b.fcmp_ordered(">", a, c), a, c)

        return self.flt_of(self.fold(x, larger))

    def lane_f(self, x: F, k: int) -> float:
        """Lane k (0..15) as a float32 scalar."""
        lane = self.b.trunc(self.int_value(k), I32)
        return self.flt_of(self.b.extract_element(self.join(x), lane))
