"""The vector vocabulary: words over strips of 16 lanes, one text for every instruction set.

Kernels are written with the module-level `v`: `acc = v.fma(x, y, acc)`. When a kernel is compiled,
`v` becomes the words of the chosen instruction set. A `@macro` is a function over words that runs
*while* the kernel is compiled, so plain Python loops in it unroll; it takes the words as its first
parameter:

    @macro
    def square_sum(v: Words, acc: F, a: Addr) -> F:
        for k in range(4):
            x = v.ld_f(a + 64 * k)
            acc = v.fma(x, x, acc)
        return acc

    def kernel(args: int, task: int, thread: int) -> None:
        acc = square_sum(v.zero_f(), v.ld_i64(args))

Importing this package loads neither numba nor llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from quant.simd.values import LANES, Addr, B, F, M, S, Vec, W

if TYPE_CHECKING:
    from quant.simd.words import Words

__all__ = ["LANES", "Addr", "B", "F", "M", "Macro", "S", "Vec", "W", "macro", "v"]

P = ParamSpec("P")
R = TypeVar("R")


class WordsProxy:
    """Stands for the words in the text of a kernel; replaced when the kernel is compiled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"v.{name} can only be used inside a kernel that is being compiled")


v: Words = cast("Words", WordsProxy())


class Macro(Generic[P, R]):
    """A function over words that is traced into the kernel which calls it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a kernel writes; only its text is read, so this is never called."""
        raise RuntimeError(
            f"macro {self.__name__} can only be used inside a kernel that is being compiled"
        )


def macro(fn: Callable[Concatenate[Words, P], R]) -> Macro[P, R]:
    """Mark a function over words as a macro. Inside other macros call `name.fn(v, ...)`."""
    return Macro(fn)
