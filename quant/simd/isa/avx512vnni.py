"""AVX-512 with VNNI: one register a strip."""

from __future__ import annotations

from quant.simd.isa.vnni import Vnni
from quant.simd.layout import Codes


class Avx512Vnni(Vnni):
    """Words for AVX-512 VNNI."""

    isa = "avx512vnni"
    P = 1
    tile = (2, 6)
    tile_float = (2, 6)
    widths = (2, 4, 8)
    asm_register = "v"
    dot_intrinsic = "llvm.x86.avx512.vpdpbusd.512"

    def tile_of(self, codes: Codes, planes: int) -> tuple[int, int]:
        """Sums of sub-groups of 16 wait in registers of their own: four columns fit."""
        strips, columns = super().tile_of(codes, planes)
        return strips, min(columns, 4) if codes.group == 16 else columns
