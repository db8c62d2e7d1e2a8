"""NEON with the dot product extension (Apple M1 and later): sdot on signed bytes, 4 registers."""

from __future__ import annotations

from typing import Any

from quant.simd.isa.arm import Arm
from quant.simd.layout import Codes


class NeonDot(Arm):
    """Words for NEON dotprod. Codes below 128 are signed bytes as they stand."""

    isa = "neondot"
    P = 4
    tile = (1, 3)
    tile_float = (1, 4)
    asm_register = "w"

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """acc + sum of 4 products in each lane of a register, by sdot."""
        return self.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", self.reg_type("W"), [acc, u, x])
