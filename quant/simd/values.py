"""What flows between words: strips of 16 rows (or 16 lanes) and scalars, as traced values.

A strip value is 16 lanes x 32 bits, held in P registers of the instruction set (AVX-512 one, AVX2
two, NEON four, generic one that LLVM splits):

    F float32            W int32                M mask (one bit a lane)
    B 4 bytes a lane     A accumulator of dot4  S sub-scale, ready to multiply an A

Scalars are `Int` (int64, also addresses), `Flt` (float32) and `Dbl` (float64). While a kernel is
traced they carry LLVM values; to the type checker, and to the author of a kernel, they are plain
`int` and `float`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from quant.simd.base import Base

LANES = 16

Addr = int  # an int64 address; traced as Int
Const = int  # a number that must be known while the kernel is compiled; see `bridge.const_params`


class Vec:
    """One strip value: `regs` are the P LLVM values that hold it."""

    __slots__ = ("regs",)
    kind: ClassVar[str] = ""

    def __init__(self, regs: list[Any]) -> None:
        self.regs = regs


class F(Vec):
    """16 float32."""

    __slots__ = ()
    kind = "F"


class W(Vec):
    """16 int32."""

    __slots__ = ()
    kind = "W"


class M(Vec):
    """16 conditions."""

    __slots__ = ()
    kind = "M"


class B(Vec):
    """16 lanes of 4 bytes: 4 consecutive k of each row."""

    __slots__ = ()
    kind = "B"


class A(Vec):
    """Accumulator of `dot4`: int16 pairs on AVX2, int32 elsewhere."""

    __slots__ = ()
    kind = "A"


class S(Vec):
    """Sub-scale of each row, in the form that multiplies an A."""

    __slots__ = ()
    kind = "S"


KINDS: dict[str, type[Vec]] = {c.kind: c for c in (F, W, M, B, A, S)}


class Int:
    """A traced int64. Supports the arithmetic that addresses and loop counters need."""

    __slots__ = ("ir", "words")

    def __init__(self, words: Base, ir: Any) -> None:
        self.words, self.ir = words, ir

    def _bin(self, op: str, other: Any) -> Int:
        y = self.words.int_value(other)
        return Int(self.words, getattr(self.words.b, op)(self.ir, y))

    def __add__(self, other: Any) -> Int:
        return self if isinstance(other, int) and other == 0 else self._bin("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Int:
        return self if isinstance(other, int) and other == 0 else self._bin("sub", other)

    def __mul__(self, other: Any) -> Int:
        return self if isinstance(other, int) and other == 1 else self._bin("mul", other)

    __rmul__ = __mul__

    def __and__(self, other: Any) -> Int:
        return self._bin("and_", other)

    def __lshift__(self, other: Any) -> Int:
        return self._bin("shl", other)

    def __rshift__(self, other: Any) -> Int:
        return self._bin("ashr", other)


class Flt:
    """A traced float32 scalar."""

    __slots__ = ("ir", "words")

    def __init__(self, words: Base, ir: Any) -> None:
        self.words, self.ir = words, ir


class Dbl:
    """A traced float64 scalar."""

    __slots__ = ("ir", "words")

    def __init__(self, words: Base, ir: Any) -> None:
        self.words, self.ir = words, ir
