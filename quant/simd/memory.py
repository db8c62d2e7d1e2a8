"""Words that move strips between memory and registers. All addresses may be unaligned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from quant.simd.values import LANES, Addr, B, F, H, S, Vec, W

if TYPE_CHECKING:
    from quant.simd.words import Words as Self
else:
    Self = Any

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F16, F32, PTR = ir.HalfType(), ir.FloatType(), ir.PointerType()


class MemoryWords:
    """Loads, stores and broadcasts."""

    def ptr(self: Self, a: Any) -> Any:
        return self.b.inttoptr(self.int_value(a), PTR)

    def load_raw(self: Self, a: Any, t: Any, align: int = 1) -> Any:
        return self.b.load(self.ptr(a), align=align, typ=t)

    def store_raw(self: Self, a: Any, x: Any, align: int = 1) -> None:
        self.b.store(x, self.ptr(a), align=align)

    def _ld(self: Self, cls: type[Any], a: Addr) -> Any:
        size = 64 // self.P
        return self.each_p(cls, lambda p: self.load_raw(a + p * size, self.reg_type(cls.kind)))

    def _st(self: Self, a: Addr, x: Vec) -> None:
        size = 64 // self.P
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * size, r)

    # ---- 64 bytes as they are --------------------------------------------------------------------------------------

    def ld_f(self: Self, a: Addr) -> F:
        """16 float32."""
        out: F = self._ld(F, a)
        return out

    def st_f(self: Self, a: Addr, x: F) -> None:
        self._st(a, x)

    def ld_w(self: Self, a: Addr) -> W:
        """16 int32."""
        out: W = self._ld(W, a)
        return out

    def st_w(self: Self, a: Addr, x: W) -> None:
        self._st(a, x)

    def ld_b(self: Self, a: Addr) -> B:
        """16 x 4 bytes."""
        out: B = self._ld(B, a)
        return out

    def st_b(self: Self, a: Addr, x: B) -> None:
        self._st(a, x)

    def ld_s(self: Self, a: Addr) -> S:
        """16 sub-scales that `st_s` stored."""
        out: S = self._ld(S, a)
        return out

    def st_s(self: Self, a: Addr, x: S) -> None:
        self._st(a, x)

    # ---- the first n lanes -----------------------------------------------------------------------------------------

    def ld_f_tail(self: Self, a: Addr, n: int) -> F:
        """The first n (0..16) of 16 float32, the other lanes 0; memory behind them is not touched."""
        t = ir.VectorType(F32, LANES)
        m = self._first(n)
        fn = f"llvm.masked.load.v{LANES}f32.p0"
        args = [self.ptr(a), ir.Constant(I32, 4), m, ir.Constant(t, [0.0] * LANES)]
        return self.split(F, self._masked(fn, t, args))

    def st_f_tail(self: Self, a: Addr, x: F, n: int) -> None:
        """Store the first n (0..16) lanes."""
        fn = f"llvm.masked.store.v{LANES}f32.p0"
        self._masked(
            fn, ir.VoidType(), [self.join(x), self.ptr(a), ir.Constant(I32, 4), self._first(n)]
        )

    def _masked(self: Self, name: str, ret: Any, args: list[Any]) -> Any:
        """llvmlite's LLVM names the alignment either by an operand or by an attribute; 4 is natural in both."""
        return self.intrinsic(name, ret, args)

    def _first(self: Self, n: Any) -> Any:
        t = ir.VectorType(I32, LANES)
        k = self.splat_reg(self.b.trunc(self.int_value(n), I32), LANES)
        return self.b.icmp_signed("<", ir.Constant(t, list(range(LANES))), k)

    # ---- one element to all lanes ----------------------------------------------------------------------------------

    def bc_f(self: Self, a: Addr) -> F:
        """The float32 at a in every lane."""
        return F([self.splat_reg(self.load_raw(a, F32), self.lanes)] * self.P)

    def bc_w(self: Self, a: Addr) -> W:
        """The int32 at a in every lane."""
        return W([self.splat_reg(self.load_raw(a, I32), self.lanes)] * self.P)

    def bc_b(self: Self, a: Addr) -> B:
        """The 4 bytes at a in every lane."""
        x = self.splat_reg(self.load_raw(a, I32), self.lanes)
        return B([self.b.bitcast(x, self.reg_type("B"))] * self.P)

    # ---- 16 narrow elements, widened -------------------------------------------------------------------------------

    def _narrow(self: Self, a: Addr, p: int, t: Any, size: int) -> Any:
        return self.load_raw(a + p * self.lanes * size, ir.VectorType(t, self.lanes))

    def ld_u8_w(self: Self, a: Addr) -> W:
        """16 uint8 -> int32."""
        return self.each_p(W, lambda p: self.b.zext(self._narrow(a, p, I8, 1), self.reg_type("W")))

    def ld_s8_w(self: Self, a: Addr) -> W:
        """16 int8 -> int32."""
        return self.each_p(W, lambda p: self.b.sext(self._narrow(a, p, I8, 1), self.reg_type("W")))

    def ld_u16_w(self: Self, a: Addr) -> W:
        """16 uint16 -> int32."""
        return self.each_p(W, lambda p: self.b.zext(self._narrow(a, p, I16, 2), self.reg_type("W")))

    def ld_u8_s(self: Self, a: Addr) -> S:
        """16 uint8 -> sub-scales."""
        return self.each_p(S, lambda p: self.scale_reg(self._narrow(a, p, I8, 1), False))

    def ld_s8_s(self: Self, a: Addr) -> S:
        """16 int8 -> sub-scales."""
        return self.each_p(S, lambda p: self.scale_reg(self._narrow(a, p, I8, 1), True))

    def ld_f16(self: Self, a: Addr) -> F:
        """16 half floats -> float32, exact; NaN stays NaN."""
        return self.each_p(
            F, lambda p: self.b.fpext(self._narrow(a, p, F16, 2), self.reg_type("F"))
        )

    def st_f16(self: Self, a: Addr, x: F) -> None:
        """Round to half floats (nearest even, overflow to infinity) and store 16 of them."""
        for p, r in enumerate(x.regs):
            self.store_raw(
                a + p * self.lanes * 2, self.b.fptrunc(r, ir.VectorType(F16, self.lanes))
            )

    def ld_bf16(self: Self, a: Addr) -> F:
        """16 bfloat16 -> float32, exact."""
        w = self.ld_u16_w(a)
        return self.f_of_w(self.shl_w(w, 16))

    def st_w_s8(self: Self, a: Addr, x: W) -> None:
        """The low byte of each lane, 16 bytes."""
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * self.lanes, self.b.trunc(r, ir.VectorType(I8, self.lanes)))

    def st_w_s16(self: Self, a: Addr, x: W) -> None:
        """The low 16 bits of each lane, 32 bytes."""
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * self.lanes * 2, self.b.trunc(r, ir.VectorType(I16, self.lanes)))

    def ld_h(self: Self, a: Addr) -> H:
        """16 x 2 int16."""
        out: H = self._ld(H, a)
        return out

    def prefetch(self: Self, a: Addr) -> None:
        """Ask for the cache line at a; never faults."""
        args = [self.ptr(a)] + [ir.Constant(I32, k) for k in (0, 3, 1)]
        self.intrinsic("llvm.prefetch.p0", ir.VoidType(), args)
