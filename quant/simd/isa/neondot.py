"""NEON with the dot product extension (Apple M1 and later): four registers a strip, sdot on signed bytes."""

from __future__ import annotations

from typing import Any, ClassVar

from quant.simd.layout import Codes
from quant.simd.isa.arm import Arm


class NeonDot(Arm):
    """Words for NEON dotprod. Codes below 128 are signed bytes as they stand."""

    isa = "neondot"
    P = 4
    tile: ClassVar[tuple[int, int]] = (1, 3)
    tile_float: ClassVar[tuple[int, int]] = (1, 4)
    asm_register = "w"

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        return self.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", self.reg_type("W"), [acc, u, x])
