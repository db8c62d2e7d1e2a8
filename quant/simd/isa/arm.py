"""Words that all 64-bit Arm instruction sets share."""

from __future__ import annotations

from llvmlite import ir

from quant.simd.base import I32, I64, VOID
from quant.simd.values import Addr
from quant.simd.words import Words


class Arm(Words):
    """The spinning hint and FPCR."""

    ieee_state = 0  # nearest even, subnormals kept, NaN propagated

    def prefetch(self, a: Addr, level: int = 1) -> None:
        """Only into the first level: a second address per line costs registers of the loop."""
        if level == 1:
            super().prefetch(a)

    def pause(self) -> None:
        """Tell the core that this is a spinning loop."""
        self.intrinsic("llvm.aarch64.isb", VOID, [ir.Constant(I32, 15)])

    def fp_state(self) -> int:
        """FPCR."""
        return self.int_of(self.intrinsic("llvm.aarch64.get.fpcr", I64, []))

    def set_fp_state(self, x: int) -> None:
        """Set FPCR."""
        self.intrinsic("llvm.aarch64.set.fpcr", VOID, [self.int_value(x)])
