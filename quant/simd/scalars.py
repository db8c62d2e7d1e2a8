"""Words on scalars and shared memory: loads, stores, atomics, calls, the floating-point state."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from llvmlite import ir

from quant.simd.base import F32, F64, I1, I8, I16, I32, I64, VOID, Base
from quant.simd.values import Addr, Dbl


class ScalarWords(Base):
    """Everything that is not a strip."""

    # MXCSR or FPCR: nearest even, subnormals kept, no traps.
    ieee_state: ClassVar[int] = 0

    # ---- one number at an address --------------------------------------------------------------

    def ld_i64(self, a: Addr) -> int:
        """int64."""
        return self.int_of(self.load_raw(a, I64))

    def st_i64(self, a: Addr, x: int) -> None:
        """Store 64 bits."""
        self.store_raw(a, self.int_value(x))

    def ld_i32(self, a: Addr) -> int:
        """int32, sign extended."""
        return self.int_of(self.b.sext(self.load_raw(a, I32), I64))

    def st_i32(self, a: Addr, x: int) -> None:
        """Store the low 32 bits."""
        self.store_raw(a, self.b.trunc(self.int_value(x), I32))

    def ld_u16(self, a: Addr) -> int:
        """uint16."""
        return self.int_of(self.b.zext(self.load_raw(a, I16), I64))

    def st_u16(self, a: Addr, x: int) -> None:
        """Store the low 16 bits."""
        self.store_raw(a, self.b.trunc(self.int_value(x), I16))

    def ld_u8(self, a: Addr) -> int:
        """uint8."""
        return self.int_of(self.b.zext(self.load_raw(a, I8), I64))

    def st_u8(self, a: Addr, x: int) -> None:
        """Store the low 8 bits."""
        self.store_raw(a, self.b.trunc(self.int_value(x), I8))

    def ld_f32(self, a: Addr) -> float:
        """float32."""
        return self.flt_of(self.load_raw(a, F32))

    def st_f32(self, a: Addr, x: float) -> None:
        """Store a float32."""
        self.store_raw(a, self.float_value(x))

    def ld_f64(self, a: Addr) -> float:
        """float64."""
        return cast("float", Dbl(self, self.load_raw(a, F64)))

    # ---- arithmetic ----------------------------------------------------------------------------

    def f32_bits(self, x: int) -> float:
        """The float32 with these (low 32) bits."""
        return self.flt_of(self.b.bitcast(self.b.trunc(self.int_value(x), I32), F32))

    def sqrt_f32(self, x: float) -> float:
        """IEEE square root of a float32."""
        return self.flt_of(self.intrinsic("llvm.sqrt.f32", F32, [self.float_value(x)]))

    def lshr(self, x: int, k: int) -> int:
        """x >> k with zeros from above, 64 bits."""
        return self.int_of(self.b.lshr(self.int_value(x), self.int_value(k)))

    def ctz(self, x: int) -> int:
        """Number of trailing zero bits; 64 for 0."""
        args = [self.int_value(x), ir.Constant(I1, 0)]
        return self.int_of(self.intrinsic("llvm.cttz.i64", I64, args))

    # ---- memory that threads share -------------------------------------------------------------

    def _shared(self, a: Addr) -> Any:
        return self.b.inttoptr(self.int_value(a), I64.as_pointer())

    def load_acq(self, a: Addr) -> int:
        """int64, acquire."""
        return self.int_of(self.b.load_atomic(self._shared(a), "acquire", 8, typ=I64))

    def store_rel(self, a: Addr, x: int) -> None:
        """Store an int64, release."""
        self.b.store_atomic(self.int_value(x), self._shared(a), "release", 8)

    def fetch_add(self, a: Addr, x: int) -> int:
        """Add, sequentially consistent; the old value."""
        return self.int_of(self.b.atomic_rmw("add", self._shared(a), self.int_value(x), "seq_cst"))

    def cas(self, a: Addr, old: int, new: int) -> int:
        """Store new if the word equals old; the word as it was."""
        pair = self.b.cmpxchg(
            self._shared(a), self.int_value(old), self.int_value(new), "seq_cst", "seq_cst"
        )
        return self.int_of(self.b.extract_value(pair, 0))

    def pause(self) -> None:
        """Tell the core that this is a spinning loop."""
        raise TypeError(f"{self.isa} has no spinning hint")

    # ---- calls through addresses ---------------------------------------------------------------

    def call(self, fn: Addr, args: Addr, task: int, thread: int) -> None:
        """Call a kernel."""
        t = ir.FunctionType(VOID, [I64] * 3)
        f = self.b.inttoptr(self.int_value(fn), t.as_pointer())
        self.b.call(f, [self.int_value(x) for x in (args, task, thread)])

    def call_os(self, fn: Addr, a: int, b: int, c: int, d: int, e: int, f: int, g: int) -> int:
        """Call a C function of up to seven integers, as `syscall(n, ...)`; it ignores the rest."""
        t = ir.FunctionType(I64, [I64] * 7)
        p = self.b.inttoptr(self.int_value(fn), t.as_pointer())
        return self.int_of(self.b.call(p, [self.int_value(x) for x in (a, b, c, d, e, f, g)]))

    # ---- the floating-point state --------------------------------------------------------------

    def fp_state(self) -> int:
        """MXCSR or FPCR."""
        raise TypeError(f"{self.isa} has no floating-point state")

    def set_fp_state(self, x: int) -> None:
        """Restore what `fp_state` gave."""
        raise TypeError(f"{self.isa} has no floating-point state")

    def ieee(self) -> None:
        """Nearest even, subnormals kept, no traps."""
        self.set_fp_state(self.ieee_state)
