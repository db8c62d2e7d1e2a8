"""Words that all 64-bit Arm instruction sets share."""

from __future__ import annotations

from llvmlite import ir

from quant.simd.words import Words

I32, I64, VOID = ir.IntType(32), ir.IntType(64), ir.VoidType()


class Arm(Words):
    """The spinning hint and FPCR."""

    ieee_state = 0  # nearest even, subnormals kept, NaN propagated

    def pause(self) -> None:
        self.intrinsic("llvm.aarch64.isb", VOID, [ir.Constant(I32, 15)])

    def read_fp_state(self) -> int:
        return self.int_of(self.intrinsic("llvm.aarch64.get.fpcr", I64, []))

    def write_fp_state(self, x: int) -> None:
        self.intrinsic("llvm.aarch64.set.fpcr", VOID, [self.int_value(x)])
