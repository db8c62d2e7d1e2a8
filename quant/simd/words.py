"""Words that read the same on every instruction set, and the frame in which the others are written.

A word is a method that emits LLVM code for the P registers of each value. Subclasses in `isa/` state the number of
registers and replace only what their instructions do better or differently; results are the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from llvmlite import ir

from quant.simd.dots import DotWords
from quant.simd.floats import FloatWords
from quant.simd.ints import IntWords
from quant.simd.memory import MemoryWords
from quant.simd.scalars import ScalarWords
from quant.simd.values import KINDS, LANES, A, B, F, Flt, H, Int, M, S, Vec, W

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64, PTR, VOID = (
    ir.HalfType(),
    ir.FloatType(),
    ir.DoubleType(),
    ir.PointerType(),
    ir.VoidType(),
)

V = TypeVar("V", bound=Vec)


class Words(MemoryWords, FloatWords, IntWords, ScalarWords, DotWords):
    """The vocabulary on one builder. `isa` names the instruction set, P the registers of a strip value."""

    isa: ClassVar[str] = "generic"
    P: ClassVar[int] = 1
    tile: ClassVar[tuple[int, int]] = (
        1,
        2,
    )  # strips x columns of the integer panel's register tile
    tile_float: ClassVar[tuple[int, int]] = (1, 4)
    asm_register: ClassVar[str] = (
        ""  # constraint letter of a vector register, "" where order is left to LLVM
    )

    def __init__(self, builder: Any) -> None:
        self.b = builder

    # ---- the frame -------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        return LANES // self.P

    def reg_type(self, kind: str) -> Any:
        """LLVM type of one register of a value of this kind."""
        n = self.lanes
        return {
            "F": ir.VectorType(F32, n),
            "W": ir.VectorType(I32, n),
            "M": ir.VectorType(I1, n),
            "B": ir.VectorType(I8, 4 * n),
            "H": ir.VectorType(I16, 2 * n),
            "A": ir.VectorType(I32, n),
            "S": ir.VectorType(I32, n),
        }[kind]

    def each(self, cls: type[V], fn: Callable[..., Any], *values: Vec) -> V:
        """Apply fn to the p-th registers of all values."""
        return cls([fn(*(x.regs[p] for x in values)) for p in range(self.P)])

    def each_p(self, cls: type[V], fn: Callable[[int], Any]) -> V:
        return cls([fn(p) for p in range(self.P)])

    def intrinsic(self, name: str, ret: Any, args: list[Any]) -> Any:
        """Call an LLVM intrinsic, declared on first use."""
        m = self.b.module
        fn = m.globals.get(name) or ir.Function(
            m, ir.FunctionType(ret, [a.type for a in args]), name
        )
        return self.b.call(fn, args)

    def int_value(self, x: Any) -> Any:
        return x.ir if isinstance(x, Int) else ir.Constant(I64, int(x))

    def float_value(self, x: Any) -> Any:
        return x.ir if isinstance(x, Flt) else ir.Constant(F32, float(x))

    def const(self, kind: str, value: float) -> Any:
        t = self.reg_type(kind)
        return ir.Constant(t, [value] * t.count)

    def undef(self, t: Any) -> Any:
        return ir.Constant(t, ir.Undefined)

    def shuffle(self, x: Any, y: Any, lanes: list[int]) -> Any:
        return self.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    def splat_reg(self, x: Any, n: int) -> Any:
        t = ir.VectorType(x.type, n)
        one = self.b.insert_element(self.undef(t), x, ir.Constant(I32, 0))
        return self.shuffle(one, self.undef(t), [0] * n)

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

    def keep(self, x: Any) -> Any:
        """An empty volatile asm: no instruction, but LLVM keeps the order in which the steps are written.

        Without it LLVM sweeps column by column and spills the weights of an unrolled tile.
        """
        if not self.asm_register:
            return x
        c = self.asm_register
        return self.b.asm(ir.FunctionType(x.type, [x.type]), "", f"={c},0", [x], True)


def kind_class(kind: str) -> type[Vec]:
    return KINDS[kind]


__all__ = ["A", "B", "F", "H", "M", "S", "W", "Words", "kind_class"]
