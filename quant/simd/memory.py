"""Words that move strips between memory and registers. All addresses may be unaligned."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.base import F16, F32, I8, I16, I32, VOID, V
from quant.simd.floats import FloatWords
from quant.simd.ints import IntWords
from quant.simd.values import LANES, Addr, B, F, Vec, W


class MemoryWords(FloatWords, IntWords):
    """Loads, stores and broadcasts of strip values."""

    def load(self, cls: type[V], a: Addr) -> V:
        """64 bytes as a value of any kind."""
        size = 64 // self.P
        return self.each_p(cls, lambda p: self.load_raw(a + p * size, self.reg_type(cls.kind)))

    def store(self, a: Addr, x: Vec) -> None:
        """A value of any kind as 64 bytes."""
        size = 64 // self.P
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * size, r)

    # ---- 64 bytes as they are ------------------------------------------------------------------

    def ld_f(self, a: Addr) -> F:
        """16 float32."""
        return self.load(F, a)

    def st_f(self, a: Addr, x: F) -> None:
        """Store 16 float32."""
        self.store(a, x)

    def ld_w(self, a: Addr) -> W:
        """16 int32."""
        return self.load(W, a)

    def st_w(self, a: Addr, x: W) -> None:
        """Store 16 int32."""
        self.store(a, x)

    def ld_b(self, a: Addr) -> B:
        """16 x 4 bytes."""
        return self.load(B, a)

    def st_b(self, a: Addr, x: B) -> None:
        """Store 16 x 4 bytes."""
        self.store(a, x)

    # ---- the first n lanes ---------------------------------------------------------------------

    def ld_f_tail(self, a: Addr, n: int) -> F:
        """The first n (0..16) of 16 float32, the other lanes 0; nothing behind them is read."""
        t = ir.VectorType(F32, LANES)
        zeros = ir.Constant(t, [0.0] * LANES)
        # LLVM names the alignment either by an operand or by an attribute; 4 is natural in both.
        args = [self.ptr(a), ir.Constant(I32, 4), self._first(n), zeros]
        return self.split(F, self.intrinsic(f"llvm.masked.load.v{LANES}f32.p0", t, args))

    def st_f_tail(self, a: Addr, x: F, n: int) -> None:
        """Store the first n (0..16) lanes."""
        args = [self.join(x), self.ptr(a), ir.Constant(I32, 4), self._first(n)]
        self.intrinsic(f"llvm.masked.store.v{LANES}f32.p0", VOID, args)

    def _first(self, n: int) -> Any:
        """The mask of the first n of 16 lanes."""
        t = ir.VectorType(I32, LANES)
        k = self.splat_reg(self.b.trunc(self.int_value(n), I32), LANES)
        return self.b.icmp_signed("<", ir.Constant(t, list(range(LANES))), k)

    # ---- one element to all lanes --------------------------------------------------------------

    def bc_f(self, a: Addr) -> F:
        """The float32 at a in every lane."""
        return F([self.splat_reg(self.load_raw(a, F32), self.lanes)] * self.P)

    def bc_b(self, a: Addr) -> B:
        """The 4 bytes at a in every lane."""
        x = self.splat_reg(self.load_raw(a, I32), self.lanes)
        return B([self.b.bitcast(x, self.reg_type("B"))] * self.P)

    # ---- 16 narrow elements, widened -----------------------------------------------------------

    def narrow(self, a: Addr, p: int, t: Any, size: int) -> Any:
        """The elements (LLVM type t, `size` bytes each) that belong to register p."""
        return self.load_raw(a + p * self.lanes * size, ir.VectorType(t, self.lanes))

    def ld_u8_w(self, a: Addr) -> W:
        """16 uint8 -> int32."""
        return self.each_p(W, lambda p: self.b.zext(self.narrow(a, p, I8, 1), self.reg_type("W")))

    def ld_s8_w(self, a: Addr) -> W:
        """16 int8 -> int32."""
        return self.each_p(W, lambda p: self.b.sext(self.narrow(a, p, I8, 1), self.reg_type("W")))

    def ld_u16_w(self, a: Addr) -> W:
        """16 uint16 -> int32."""
        return self.each_p(W, lambda p: self.b.zext(self.narrow(a, p, I16, 2), self.reg_type("W")))

    def ld_f16(self, a: Addr) -> F:
        """16 half floats -> float32, exact; NaN stays NaN."""
        return self.each_p(F, lambda p: self.b.fpext(self.narrow(a, p, F16, 2), self.reg_type("F")))

    def ld_bf16(self, a: Addr) -> F:
        """16 bfloat16 -> float32, exact."""
        return self.f_of_w(self.shl_w(self.ld_u16_w(a), 16))

    # ---- 16 elements, narrowed -----------------------------------------------------------------

    def st_f16(self, a: Addr, x: F) -> None:
        """Round to half floats (nearest even, overflow to infinity) and store 16 of them."""
        t = ir.VectorType(F16, self.lanes)
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * self.lanes * 2, self.b.fptrunc(r, t))

    def st_w_s8(self, a: Addr, x: W) -> None:
        """The low byte of each lane, 16 bytes."""
        t = ir.VectorType(I8, self.lanes)
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * self.lanes, self.b.trunc(r, t))

    def st_w_s16(self, a: Addr, x: W) -> None:
        """The low 16 bits of each lane, 32 bytes."""
        t = ir.VectorType(I16, self.lanes)
        for p, r in enumerate(x.regs):
            self.store_raw(a + p * self.lanes * 2, self.b.trunc(r, t))

    def prefetch(self, a: Addr, level: int = 1) -> None:
        """Ask for the line at a, into the cache of this level (1 or 2); never faults."""
        args = [self.ptr(a)] + [ir.Constant(I32, k) for k in (0, 4 - level, 1)]
        self.intrinsic("llvm.prefetch.p0", VOID, args)
