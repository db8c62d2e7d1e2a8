"""Words that all x86-64 instruction sets share."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.base import I32, I64, PTR, VOID
from quant.simd.words import Words


class X86(Words):
    """The spinning hint and MXCSR."""

    ieee_state = 0x1F80  # all exceptions masked, nearest even, no FTZ, no DAZ

    def pause(self) -> None:
        """Tell the core that this is a spinning loop."""
        self.intrinsic("llvm.x86.sse2.pause", VOID, [])

    def fp_state(self) -> int:
        """MXCSR."""
        p = self._slot()
        self._mxcsr("llvm.x86.sse.stmxcsr", p)
        return self.int_of(self.b.zext(self.b.load(p, typ=I32), I64))

    def set_fp_state(self, x: int) -> None:
        """Set MXCSR."""
        p = self._slot()
        self.b.store(self.b.trunc(self.int_value(x), I32), p)
        self._mxcsr("llvm.x86.sse.ldmxcsr", p)

    def _slot(self) -> Any:
        with self.b.goto_entry_block():
            return self.b.alloca(I32)

    def _mxcsr(self, name: str, p: Any) -> None:
        # llvmlite's alloca is a typed pointer, the intrinsic's parameter is not.
        m = self.b.module
        fn = m.globals.get(name) or ir.Function(m, ir.FunctionType(VOID, [PTR]), name)
        self.b.call(fn, [self.b.bitcast(p, PTR)])
