"""Words that all x86-64 instruction sets share."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.words import Words

I8, I32, I64, VOID = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.VoidType()


class X86(Words):
    """The spinning hint and MXCSR."""

    ieee_state = 0x1F80  # all exceptions masked, nearest even, no FTZ, no DAZ

    def pause(self) -> None:
        self.intrinsic("llvm.x86.sse2.pause", VOID, [])

    def _slot(self) -> Any:
        with self.b.goto_entry_block():
            return self.b.alloca(I32)

    def read_fp_state(self) -> int:
        p = self._slot()
        self._mxcsr("llvm.x86.sse.stmxcsr", p)
        return self.int_of(self.b.zext(self.b.load(p, typ=I32), I64))

    def write_fp_state(self, x: int) -> None:
        p = self._slot()
        self.b.store(self.b.trunc(self.int_value(x), I32), p)
        self._mxcsr("llvm.x86.sse.ldmxcsr", p)

    def _mxcsr(self, name: str, p: Any) -> None:
        m = self.b.module
        t = ir.PointerType()
        fn = m.globals.get(name) or ir.Function(m, ir.FunctionType(VOID, [t]), name)
        self.b.call(fn, [self.b.bitcast(p, t)])
