"""AVX-512 with VNNI: one register a strip; vpdpbusd adds four products of bytes to an int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quant.simd.dots import Code, Scales
from quant.simd.isa.x86 import X86
from quant.simd.layout import Codes
from quant.simd.values import Addr, F, W


class Avx512Vnni(X86):
    """Words for AVX-512 VNNI."""

    isa = "avx512vnni"
    P = 1
    tile = (2, 6)
    tile_float = (2, 6)
    asm_register = "v"
    flip_signed = True  # vpdpbusd takes unsigned codes and signed activations

    def tile_of(self, codes: Codes, planes: int) -> tuple[int, int]:
        """Sums of sub-groups of 16 wait in registers of their own: four columns fit."""
        strips, columns = super().tile_of(codes, planes)
        return strips, min(columns, 4) if codes.group == 16 else columns

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """acc + sum of 4 products in each lane of a register, by vpdpbusd."""
        return self.intrinsic("llvm.x86.avx512.vpdpbusd.512", self.reg_type("W"), [acc, u, x])

    def group_values(
        self,
        code: Code,
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        scales: Scales | None = None,
    ) -> list[list[F]]:
        """f32(i) with sub-scales applied in float32: exact, since sums, products and i fit 24 bits.

        A multiplication of int32 is two operations of ten cycles, one of float32 is one of four.
        """
        if scales is None:
            return super().group_values(code, n_strips, columns, codes, scales)
        out: list[list[F]] = []
        for j, acc in self.accumulated(code, n_strips, columns, codes):
            by = [self.cvt(W(scales(s, j).regs)) for s in range(n_strips)]
            new = [[self.cvt(W(a.regs)) for a in row] for row in acc]
            if out:
                out = [
                    [self.fma(x, by[s], y) for x, y in zip(new[s], out[s], strict=True)]
                    for s in range(n_strips)
                ]
            else:
                out = [[self.mul(x, by[s]) for x in new[s]] for s in range(n_strips)]
        return out
