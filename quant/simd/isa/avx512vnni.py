"""AVX-512 with VNNI: one register a strip; vpdpbusd adds four products of bytes to an int32."""

from __future__ import annotations

from typing import Any

from quant.simd.isa.x86 import X86
from quant.simd.layout import Codes


class Avx512Vnni(X86):
    """Words for AVX-512 VNNI."""

    isa = "avx512vnni"
    P = 1
    tile = (2, 6)
    tile_float = (2, 6)
    asm_register = "v"
    flip_signed = True  # vpdpbusd takes unsigned codes and signed activations

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """acc + sum of 4 products in each lane of a register, by vpdpbusd."""
        return self.intrinsic("llvm.x86.avx512.vpdpbusd.512", self.reg_type("W"), [acc, u, x])
