"""Words on 16 float32 lanes. Every one is the IEEE operation it names: no contraction, no estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from quant.simd.values import LANES, F, Flt, M, W

if TYPE_CHECKING:
    from quant.simd.words import Words as Self
else:
    Self = Any

I32, F32 = ir.IntType(32), ir.FloatType()


class FloatWords:
    """Arithmetic, comparison, reductions."""

    def zero_f(self: Self) -> F:
        return F([self.const("F", 0.0)] * self.P)

    def splat_f(self: Self, x: float) -> F:
        """A float32 scalar in every lane."""
        return F([self.splat_reg(self.float_value(x), self.lanes)] * self.P)

    def iota_f(self: Self) -> F:
        """0, 1, .. 15."""
        n = self.lanes
        return self.each_p(
            F, lambda p: ir.Constant(self.reg_type("F"), [float(p * n + k) for k in range(n)])
        )

    def add(self: Self, x: F, y: F) -> F:
        return self.each(F, self.b.fadd, x, y)

    def sub(self: Self, x: F, y: F) -> F:
        return self.each(F, self.b.fsub, x, y)

    def mul(self: Self, x: F, y: F) -> F:
        return self.each(F, self.b.fmul, x, y)

    def div(self: Self, x: F, y: F) -> F:
        return self.each(F, self.b.fdiv, x, y)

    def neg(self: Self, x: F) -> F:
        return self.each(F, self.b.fneg, x)

    def _unary(self: Self, name: str, x: F) -> F:
        t = self.reg_type("F")
        return self.each(F, lambda r: self.intrinsic(f"llvm.{name}.v{self.lanes}f32", t, [r]), x)

    def abs(self: Self, x: F) -> F:
        return self._unary("fabs", x)

    def sqrt(self: Self, x: F) -> F:
        return self._unary("sqrt", x)

    def fma(self: Self, x: F, y: F, z: F) -> F:
        """x * y + z with one rounding."""
        t = self.reg_type("F")
        return self.each(
            F, lambda *r: self.intrinsic(f"llvm.fma.v{self.lanes}f32", t, list(r)), x, y, z
        )

    def max(self: Self, x: F, y: F) -> F:
        """x where x > y, else y: NaN in x gives y, NaN in y gives y."""
        return self.select(self.gt(x, y), x, y)

    def min(self: Self, x: F, y: F) -> F:
        """x where x < y, else y: NaN in x gives y, NaN in y gives y."""
        return self.select(self.lt(x, y), x, y)

    # ---- conditions: false where a lane is NaN ---------------------------------------------------------------------

    def _cmp(self: Self, op: str, x: F, y: F) -> M:
        return self.each(M, lambda a, c: self.b.fcmp_ordered(op, a, c), x, y)

    def lt(self: Self, x: F, y: F) -> M:
        return self._cmp("<", x, y)

    def le(self: Self, x: F, y: F) -> M:
        return self._cmp("<=", x, y)

    def gt(self: Self, x: F, y: F) -> M:
        return self._cmp(">", x, y)

    def ge(self: Self, x: F, y: F) -> M:
        return self._cmp(">=", x, y)

    def eq(self: Self, x: F, y: F) -> M:
        return self._cmp("==", x, y)

    def select(self: Self, m: M, x: F, y: F) -> F:
        """x where m, else y."""
        return self.each(F, self.b.select, m, x, y)

    def and_m(self: Self, x: M, y: M) -> M:
        return self.each(M, self.b.and_, x, y)

    def or_m(self: Self, x: M, y: M) -> M:
        return self.each(M, self.b.or_, x, y)

    def any_m(self: Self, m: M) -> int:
        """1 if the condition holds in some lane, else 0."""
        x = self.b.bitcast(self.join(m), ir.IntType(LANES))
        return self.int_of(
            self.b.zext(self.b.icmp_unsigned("!=", x, ir.Constant(x.type, 0)), ir.IntType(64))
        )

    def mask_bits(self: Self, m: M) -> int:
        """The conditions as bits, lane 0 lowest."""
        return self.int_of(
            self.b.zext(self.b.bitcast(self.join(m), ir.IntType(LANES)), ir.IntType(64))
        )

    # ---- to and from integers --------------------------------------------------------------------------------------

    def cvt(self: Self, x: W) -> F:
        """int32 -> float32, nearest even."""
        return self.each(F, lambda r: self.b.sitofp(r, self.reg_type("F")), x)

    def rint_w(self: Self, x: F) -> W:
        """Nearest even as int32, for |x| < 2**22: adds 1.5 * 2**23 and takes the low bits, so no rounding mode is read."""
        k = self.const("F", 12582912.0)
        t = self.reg_type("W")
        one = self.b.bitcast(k, t)
        return self.each(W, lambda r: self.b.sub(self.b.bitcast(self.b.fadd(r, k), t), one), x)

    def f_of_w(self: Self, x: W) -> F:
        """The same bits as float32."""
        return self.each(F, lambda r: self.b.bitcast(r, self.reg_type("F")), x)

    def w_of_f(self: Self, x: F) -> W:
        """The same bits as int32."""
        return self.each(W, lambda r: self.b.bitcast(r, self.reg_type("W")), x)

    # ---- over the lanes: one fixed tree, i with i + 8, then + 4, + 2, + 1 ------------------------------------------

    def fold(self: Self, x: Any, fn: Any) -> Any:
        """Scalar from the 16-lane value by the fixed tree."""
        regs = list(x.regs)
        while len(regs) > 1:
            h = len(regs) // 2
            regs = [fn(regs[k], regs[k + h]) for k in range(h)]
        r = regs[0]
        while r.type.count > 1:
            n = r.type.count // 2
            u = self.undef(r.type)
            r = fn(self.shuffle(r, u, list(range(n))), self.shuffle(r, u, list(range(n, 2 * n))))
        return self.b.extract_element(r, ir.Constant(I32, 0))

    def hsum(self: Self, x: F) -> float:
        """Sum of the lanes by the fixed tree, float32."""
        return self.flt_of(self.fold(x, self.b.fadd))

    def hmax(self: Self, x: F) -> float:
        """Largest lane by the fixed tree (see `max` for NaN), float32."""

        def larger(a: Any, c: Any) -> Any:
            return self.b.select(self.b.fcmp_ordered(">", a, c), a, c)

        return self.flt_of(self.fold(x, larger))

    def flt_of(self: Self, x: Any) -> Any:
        return Flt(self, x)

    def lane_f(self: Self, x: F, k: int) -> float:
        """Lane k (0..15) as a float32 scalar."""
        return self.flt_of(
            self.b.extract_element(self.join(x), self.b.trunc(self.int_value(k), I32))
        )
