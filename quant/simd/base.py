"""The frame in which words are written: a builder, and the registers that hold a strip value.

Nothing here computes. Helpers take and give LLVM values, which are `Any` to the type checker;
words take and give the kinds of `quant.simd.values`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from llvmlite import ir

from quant.simd.values import LANES, Addr, Flt, Int, Vec

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
PTR, VOID = ir.PointerType(), ir.VoidType()

V = TypeVar("V", bound=Vec)


class Base:
    """One builder, and the facts of an instruction set that decide how values are held."""

    isa: ClassVar[str] = "generic"
    P: ClassVar[int] = 1  # registers of a strip value
    # Strips x columns of the register tiles of panels: integer types, float types.
    tile: ClassVar[tuple[int, int]] = (1, 2)
    tile_float: ClassVar[tuple[int, int]] = (1, 4)
    # Constraint letter of a vector register in inline assembly; "" leaves the order to LLVM.
    asm_register: ClassVar[str] = ""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    # ---- registers -----------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Lanes of one register."""
        return LANES // self.P

    def reg_type(self, kind: str) -> Any:
        """LLVM type of one register of a value of this kind; "H" is 2 int16 a lane."""
        element, per_lane = {
            "F": (F32, 1),
            "W": (I32, 1),
            "M": (I1, 1),
            "B": (I8, 4),
            "H": (I16, 2),
            "A": (I32, 1),
            "S": (I32, 1),
        }[kind]
        return ir.VectorType(element, per_lane * self.lanes)

    def each(self, cls: type[V], fn: Callable[..., Any], *values: Vec) -> V:
        """fn of the p-th registers of all values, for every p."""
        return cls([fn(*(x.regs[p] for x in values)) for p in range(self.P)])

    def each_p(self, cls: type[V], fn: Callable[[int], Any]) -> V:
        """fn of the register's number, for every register."""
        return cls([fn(p) for p in range(self.P)])

    def join(self, x: Vec) -> Any:
        """The registers of a value side by side as one 16-lane vector."""
        regs = list(x.regs)
        while len(regs) > 1:
            n = regs[0].type.count
            regs = [
                self.shuffle(a, c, list(range(2 * n)))
                for a, c in zip(regs[::2], regs[1::2], strict=True)
            ]
        return regs[0]

    def split(self, cls: type[V], x: Any) -> V:
        """A 16-lane vector cut into the registers of a value."""
        n = x.type.count // self.P
        return self.each_p(
            cls, lambda p: self.shuffle(x, self.undef(x.type), list(range(p * n, p * n + n)))
        )

    def fold(self, x: Vec, fn: Callable[[Any, Any], Any]) -> Any:
        """Scalar from 16 lanes by the one fixed tree: i with i + 8, then + 4, + 2, + 1."""
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

    # ---- constants, shuffles, intrinsics -------------------------------------------------------

    def const(self, kind: str, value: float) -> Any:
        """One register with the same number everywhere."""
        t = self.reg_type(kind)
        return ir.Constant(t, [value] * t.count)

    def undef(self, t: Any) -> Any:
        """A value of which no bit matters."""
        return ir.Constant(t, ir.Undefined)

    def shuffle(self, x: Any, y: Any, lanes: list[int]) -> Any:
        """The named lanes of x and y side by side."""
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    def splat_reg(self, x: Any, n: int) -> Any:
        """A scalar in each of n lanes."""
        t = ir.VectorType(x.type, n)
        one = self.b.insert_element(self.undef(t), x, ir.Constant(I32, 0))
        return self.shuffle(one, self.undef(t), [0] * n)

    def intrinsic(self, name: str, ret: Any, args: list[Any]) -> Any:
        """Call an LLVM intrinsic, declared on first use."""
        m = self.b.module
        fn = m.globals.get(name) or ir.Function(
            m, ir.FunctionType(ret, [a.type for a in args]), name
        )
        return self.b.call(fn, args)

    def keep(self, x: Any) -> Any:
        """x behind an empty volatile asm: no instruction, but steps stay in the order written.

        Without it LLVM sweeps column by column and spills the weights of an unrolled tile.
        """
        if not self.asm_register:
            return x
        c = self.asm_register
        return self.b.asm(ir.FunctionType(x.type, [x.type]), "", f"={c},0", [x], True)

    # ---- scalars: traced values to the words, int and float to the type checker ----------------

    def int_value(self, x: Any) -> Any:
        """LLVM value of an int64, traced or constant."""
        return x.ir if isinstance(x, Int) else ir.Constant(I64, int(x))

    def float_value(self, x: Any) -> Any:
        """LLVM value of a float32, traced or constant."""
        return x.ir if isinstance(x, Flt) else ir.Constant(F32, float(x))

    def int_of(self, x: Any) -> int:
        """An LLVM int64 as a traced scalar."""
        return cast("int", Int(self, x))

    def flt_of(self, x: Any) -> float:
        """An LLVM float32 as a traced scalar."""
        return cast("float", Flt(self, x))

    # ---- memory --------------------------------------------------------------------------------

    def ptr(self, a: Addr) -> Any:
        """An address as an LLVM pointer."""
        return self.b.inttoptr(self.int_value(a), PTR)

    def load_raw(self, a: Addr, t: Any) -> Any:
        """The value of an LLVM type at an address, aligned or not."""
        return self.b.load(self.ptr(a), align=1, typ=t)

    def store_raw(self, a: Addr, x: Any) -> None:
        """Store an LLVM value at an address, aligned or not."""
        self.b.store(x, self.ptr(a), align=1)
