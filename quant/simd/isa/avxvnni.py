"""AVX2 with AVX-VNNI (Alder Lake, Zen 5 and later): two registers a strip, 16 in all."""

from __future__ import annotations

from quant.simd.isa.vnni import Vnni


class AvxVnni(Vnni):
    """Words for AVX-VNNI."""

    isa = "avxvnni"
    P = 2
    tile = (1, 3)
    tile_float = (1, 4)
    widths = (2, 3, 4)
    asm_register = "x"
    dot_intrinsic = "llvm.x86.avx512.vpdpbusd.256"
