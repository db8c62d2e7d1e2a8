"""Makes the words and macros callable from a kernel that Numba compiles; imports numba.

Every word and macro becomes one Numba intrinsic. Its result type is found by tracing it once on a
scratch function; then it is traced again into the kernel itself.
"""

from __future__ import annotations

import inspect
import types as pytypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic, models, register_model

from quant.simd import Macro, WordsProxy
from quant.simd.base import F32, F64, I64, VOID, Base
from quant.simd.values import KINDS, Dbl, Flt, Int, Vec
from quant.simd.words import Words

OUR_PACKAGES = ("quant.", "gguf_runtime.", "tests.")


class StripType(types.Type):  # type: ignore[misc]
    """Numba type of a strip value of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"Strip{kind}")


STRIPS = {k: StripType(k) for k in KINDS}


class Bridge:
    """Words of one instruction set as a namespace of intrinsics; one instance per process."""

    def __init__(self, words: type[Words]) -> None:
        self.words = words
        probe = words(None)
        regs = {k: ir.ArrayType(probe.reg_type(k), words.P) for k in KINDS}

        @register_model(StripType)
        class StripModel(models.PrimitiveModel):  # type: ignore[misc]
            def __init__(self, dmm: Any, t: StripType) -> None:
                super().__init__(dmm, t, regs[t.kind])

        self._regs = regs
        self._macros: dict[int, tuple[Macro[Any, Any], Any]] = {}
        self._helpers: dict[int, tuple[Any, Any]] = {}
        self.v = pytypes.ModuleType("v")
        for name, fn in inspect.getmembers(words, inspect.isfunction):
            if not name.startswith("_") and not hasattr(Base, name):
                setattr(self.v, name, self._intrinsic(name, fn, const_params(fn)))

    # ---- between Numba values and traced values --------------------------------------------------

    def _wrap(self, w: Words, t: Any, x: Any) -> Any:
        if isinstance(t, StripType):
            cls: type[Vec] = KINDS[t.kind]
            return cls([w.b.extract_value(x, p) for p in range(self.words.P)])
        if isinstance(t, types.BaseTuple):
            return tuple(self._wrap(w, e, w.b.extract_value(x, k)) for k, e in enumerate(t))
        if t == types.float32:
            return Flt(w, x)
        if t == types.float64:
            return Dbl(w, x)
        return Int(w, x)

    def _unwrap(self, w: Words, x: Any) -> tuple[Any, Any]:
        """Traced result -> (Numba type, LLVM value)."""
        if x is None:
            return types.void, None
        if isinstance(x, Vec):
            out = ir.Constant(self._regs[x.kind], ir.Undefined)
            for p, r in enumerate(x.regs):
                out = w.b.insert_value(out, r, p)
            return STRIPS[x.kind], out
        if isinstance(x, (tuple, list)):
            parts = [self._unwrap(w, e) for e in x]
            kinds = [t for t, _ in parts]
            llvm = [v.type for _, v in parts]
            if len(set(kinds)) == 1:
                t, agg = types.UniTuple(kinds[0], len(kinds)), ir.ArrayType(llvm[0], len(llvm))
            else:
                t, agg = types.Tuple(kinds), ir.LiteralStructType(llvm)
            out = ir.Constant(agg, ir.Undefined)
            for k, (_, v) in enumerate(parts):
                out = w.b.insert_value(out, v, k)
            return t, out
        if isinstance(x, Flt):
            return types.float32, x.ir
        if isinstance(x, Dbl):
            return types.float64, x.ir
        if isinstance(x, Int):
            return types.int64, x.ir
        if isinstance(x, int):
            return types.int64, ir.Constant(I64, x)
        raise TypeError(f"a word or macro returned {type(x).__name__}")

    def _llvm(self, t: Any) -> Any:
        if isinstance(t, StripType):
            return self._regs[t.kind]
        if isinstance(t, types.UniTuple):
            return ir.ArrayType(self._llvm(t.dtype), t.count)
        if isinstance(t, types.BaseTuple):
            return ir.LiteralStructType([self._llvm(e) for e in t])
        return {types.float32: F32, types.float64: F64}.get(t, I64)

    def _trace(
        self, fn: Callable[..., Any], b: Any, kinds: list[Any], vals: list[Any]
    ) -> tuple[Any, Any]:
        w = self.words(b)
        args = [
            k.literal_value if is_const else self._wrap(w, k, x)
            for (k, is_const), x in zip(kinds, vals, strict=True)
        ]
        return self._unwrap(w, fn(w, *args))

    # ---- intrinsics ------------------------------------------------------------------------------

    def _intrinsic(self, name: str, fn: Callable[..., Any], const: list[bool]) -> Any:
        def typer(given: tuple[Any, ...]) -> Any:
            kinds = []
            for k, t in enumerate(given):
                is_const = k < len(const) and const[k]
                if is_const and not isinstance(t, types.IntegerLiteral):
                    return None
                if not is_const:
                    t = canonical(t)
                    if t is None:
                        return None
                kinds.append((t, is_const))
            sig_args = [t for t, _ in kinds]
            ret = self._probe(fn, kinds)

            def codegen(ctx: Any, b: Any, sig: Any, vals: Any) -> Any:
                _, out = self._trace(fn, b, kinds, list(vals))
                return ctx.get_dummy_value() if ret == types.void else out

            return ret(*sig_args), codegen

        # Numba reads the parameters of an intrinsic from its signature: it must be the word's.
        names = [f"a{k}" for k in range(len(inspect.signature(fn).parameters) - 1)]
        given, parts = ", ".join(["ctx", *names]), "".join(f"{n}, " for n in names)
        scope: dict[str, Any] = {"typer": typer}
        exec(f"def word({given}):\n    return typer(({parts}))\n", scope)
        word = scope["word"]
        word.__name__ = word.__qualname__ = name
        return intrinsic(prefer_literal=True)(word) if any(const) else intrinsic(word)

    def _probe(self, fn: Callable[..., Any], kinds: list[Any]) -> Any:
        """Result type of a word, from a scratch function."""
        m = ir.Module()
        f = ir.Function(m, ir.FunctionType(VOID, [self._llvm(t) for t, _ in kinds]), "probe")
        b = ir.IRBuilder(f.append_basic_block())
        return self._trace(fn, b, kinds, list(f.args))[0]

    # ---- kernels ---------------------------------------------------------------------------------

    def _resolve(self, x: Any) -> Any:
        """What a name in a kernel stands for while it is compiled."""
        if isinstance(x, WordsProxy):
            return self.v
        if isinstance(x, Macro):
            if id(x) not in self._macros:
                self._macros[id(x)] = (x, self._intrinsic(x.__name__, x.fn, const_params(x.fn)))
            return self._macros[id(x)][1]
        if isinstance(x, pytypes.FunctionType) and (x.__module__ or "").startswith(OUR_PACKAGES):
            if id(x) not in self._helpers:
                # Inlined before typing: compiled apart, it would be built for the host, whatever
                # the target.
                compiled = njit(error_model="numpy", nogil=True, inline="always")(self.prepare(x))
                self._helpers[id(x)] = (x, compiled)
            return self._helpers[id(x)][1]
        return x

    def prepare(self, fn: Any) -> Any:
        """The kernel with its names bound to intrinsics and compiled helpers."""
        names = set(fn.__code__.co_names)
        scope = {k: self._resolve(x) if k in names else x for k, x in fn.__globals__.items()}
        cells = tuple(
            pytypes.CellType(self._resolve(c.cell_contents)) for c in fn.__closure__ or ()
        )
        out = pytypes.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells)
        out.__module__ = fn.__module__
        out.__qualname__ = fn.__qualname__
        return out


def const_params(fn: Callable[..., Any]) -> list[bool]:
    """Which parameters (after the words) are annotated `Const`: known while compiling."""
    params = list(inspect.signature(fn).parameters.values())[1:]
    return [p.annotation == "Const" for p in params]


def canonical(t: Any) -> Any:
    """The type that crosses into a word: a strip, tuple, int64, float32 or float64; None: none."""
    if isinstance(t, StripType) or t in (types.float32, types.float64):
        return t
    if isinstance(t, (types.Integer, types.Boolean)):  # literals too
        return types.int64
    if isinstance(t, types.UniTuple):
        return types.UniTuple(canonical(t.dtype), t.count)
    if isinstance(t, types.BaseTuple):
        return types.Tuple([canonical(e) for e in t])
    return None
