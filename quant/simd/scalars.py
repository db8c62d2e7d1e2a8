"""Words on scalars and on shared memory: loads, stores, atomics, indirect calls, the floating-point state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from quant.simd.values import Addr, Dbl, Flt, Int

if TYPE_CHECKING:
    from quant.simd.words import Words as Self
else:
    Self = Any

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F32, F64, VOID = ir.FloatType(), ir.DoubleType(), ir.VoidType()


class ScalarWords:
    """Everything that is not a strip."""

    def ld_i64(self: Self, a: Addr) -> int:
        return self.int_of(self.load_raw(a, I64))

    def st_i64(self: Self, a: Addr, x: int) -> None:
        self.store_raw(a, self.int_value(x))

    def ld_i32(self: Self, a: Addr) -> int:
        """int32, sign extended."""
        return self.int_of(self.b.sext(self.load_raw(a, I32), I64))

    def st_i32(self: Self, a: Addr, x: int) -> None:
        self.store_raw(a, self.b.trunc(self.int_value(x), I32))

    def ld_u16(self: Self, a: Addr) -> int:
        return self.int_of(self.b.zext(self.load_raw(a, I16), I64))

    def st_u16(self: Self, a: Addr, x: int) -> None:
        self.store_raw(a, self.b.trunc(self.int_value(x), I16))

    def ld_u8(self: Self, a: Addr) -> int:
        return self.int_of(self.b.zext(self.load_raw(a, I8), I64))

    def st_u8(self: Self, a: Addr, x: int) -> None:
        self.store_raw(a, self.b.trunc(self.int_value(x), I8))

    def ld_f32(self: Self, a: Addr) -> float:
        x: Any = Flt(self, self.load_raw(a, F32))
        return x

    def st_f32(self: Self, a: Addr, x: float) -> None:
        self.store_raw(a, self.float_value(x))

    def ld_f64(self: Self, a: Addr) -> float:
        x: Any = Dbl(self, self.load_raw(a, F64))
        return x

    def bits_f32(self: Self, x: float) -> int:
        """The bits of a float32 as an unsigned number."""
        return self.int_of(self.b.zext(self.b.bitcast(self.float_value(x), I32), I64))

    def f32_bits(self: Self, x: int) -> float:
        """The float32 with these (low 32) bits."""
        y: Any = Flt(self, self.b.bitcast(self.b.trunc(self.int_value(x), I32), F32))
        return y

    def sqrt_f32(self: Self, x: float) -> float:
        """IEEE square root of a float32 scalar."""
        y: Any = Flt(self, self.intrinsic("llvm.sqrt.f32", F32, [self.float_value(x)]))
        return y

    def fma_f32(self: Self, x: float, y: float, z: float) -> float:
        """x * y + z of float32 scalars with one rounding."""
        args = [self.float_value(k) for k in (x, y, z)]
        r: Any = Flt(self, self.intrinsic("llvm.fma.f32", F32, args))
        return r

    def umulh(self: Self, x: int, y: int) -> int:
        """High 64 bits of the unsigned 128-bit product."""
        t = ir.IntType(128)
        p = self.b.mul(self.b.zext(self.int_value(x), t), self.b.zext(self.int_value(y), t))
        return self.int_of(self.b.trunc(self.b.lshr(p, ir.Constant(t, 64)), I64))

    def lshr(self: Self, x: int, k: int) -> int:
        """Logical shift right of 64 bits."""
        return self.int_of(self.b.lshr(self.int_value(x), self.int_value(k)))

    def ctz(self: Self, x: int) -> int:
        """Number of trailing zero bits; 64 for 0."""
        return self.int_of(
            self.intrinsic("llvm.cttz.i64", I64, [self.int_value(x), ir.Constant(ir.IntType(1), 0)])
        )

    # ---- memory that threads share ---------------------------------------------------------------------------------

    def _shared(self: Self, a: Addr) -> Any:
        return self.b.inttoptr(self.int_value(a), I64.as_pointer())

    def load_acq(self: Self, a: Addr) -> int:
        return self.int_of(self.b.load_atomic(self._shared(a), "acquire", 8, typ=I64))

    def store_rel(self: Self, a: Addr, x: int) -> None:
        self.b.store_atomic(self.int_value(x), self._shared(a), "release", 8)

    def fetch_add(self: Self, a: Addr, x: int) -> int:
        """Add, sequentially consistent; the old value."""
        return self.int_of(self.b.atomic_rmw("add", self._shared(a), self.int_value(x), "seq_cst"))

    def cas(self: Self, a: Addr, old: int, new: int) -> int:
        """Store new if the word equals old; the word as it was."""
        r = self.b.cmpxchg(
            self._shared(a), self.int_value(old), self.int_value(new), "seq_cst", "seq_cst"
        )
        return self.int_of(self.b.extract_value(r, 0))

    def pause(self: Self) -> None:
        """Tell the core that this is a spinning loop."""
        raise TypeError(f"{self.isa} has no spinning hint")

    # ---- calls through addresses -----------------------------------------------------------------------------------

    def call(self: Self, fn: Addr, args: Addr, task: int, thread: int) -> None:
        """Call a kernel."""
        t = ir.FunctionType(VOID, [I64] * 3)
        f = self.b.inttoptr(self.int_value(fn), t.as_pointer())
        self.b.call(f, [self.int_value(x) for x in (args, task, thread)])

    def call_os(
        self: Self, fn: Addr, a: int, b: int, c: int, d: int, e: int, f: int, g: int
    ) -> int:
        """Call a C function of seven integer arguments (`syscall(n, ...)`, or fewer: the rest is ignored)."""
        t = ir.FunctionType(I64, [I64] * 7)
        p = self.b.inttoptr(self.int_value(fn), t.as_pointer())
        return self.int_of(self.b.call(p, [self.int_value(x) for x in (a, b, c, d, e, f, g)]))

    # ---- the floating-point state ----------------------------------------------------------------------------------

    def fp_state(self: Self) -> int:
        """MXCSR or FPCR."""
        return self.read_fp_state()

    def set_fp_state(self: Self, x: int) -> None:
        """Restore what `fp_state` gave."""
        self.write_fp_state(x)

    def ieee(self: Self) -> None:
        """Nearest even, subnormals kept, no traps."""
        self.write_fp_state(self.ieee_state)


__all__ = ["Dbl", "Flt", "Int", "ScalarWords"]
