"""AVX-512 with VNNI: one register a strip, vpdpbusd adds four products of an unsigned and a signed byte to an int32."""

from __future__ import annotations

from typing import Any, ClassVar

from quant.simd.layout import Codes
from quant.simd.isa.x86 import X86


class Avx512Vnni(X86):
    """Words for AVX-512 VNNI."""

    isa = "avx512vnni"
    P = 1
    tile: ClassVar[tuple[int, int]] = (2, 6)
    tile_float: ClassVar[tuple[int, int]] = (2, 6)
    asm_register = "v"
    flip_signed = True

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        return self.intrinsic("llvm.x86.avx512.vpdpbusd.512", self.reg_type("W"), [acc, u, x])
