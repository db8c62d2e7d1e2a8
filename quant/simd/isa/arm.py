"""Words that all 64-bit Arm instruction sets share."""

from __future__ import annotations

from llvmlite import ir

from quant.simd.base import I32, I64, VOID
from quant.simd.words import Words


class Arm(Words):
    """The spinning hint and FPCR."""

    ieee_state = 0  # nearest even, subnormals kept, NaN propagated

    def pause(self) -> None:
        """Tell the core that this is a spinning loop."""
        self.intrinsic("llvm.aarch64.isb", VOID, [ir.Constant(I32, 15)])

    def fp_state(self) -> int:
        """FPCR."""
        return self.int_of(self.intrinsic("llvm.aarch64.get.fpcr", I64, []))

    def set_fp_state(self, x: int) -> None:
        """Set FPCR."""
        self.intrinsic("llvm.aarch64.set.fpcr", VOID, [self.int_value(x)])
