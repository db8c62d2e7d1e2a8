"""What AVX-512 VNNI and AVX-VNNI share: vpdpbusd adds four products of bytes to an int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from quant.simd.dots import Code, Scales
from quant.simd.floats import ROUNDER
from quant.simd.isa.x86 import X86
from quant.simd.layout import Codes
from quant.simd.values import Addr, F, S, W


class Vnni(X86):
    """Words for either, but the width of a register."""

    dot_intrinsic: ClassVar[str]
    bias = 0x4B400000  # the bits of `ROUNDER`
    flip_signed = True  # vpdpbusd takes unsigned codes and signed activations

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """acc + sum of 4 products in each lane of a register, by vpdpbusd."""
        return self.intrinsic(self.dot_intrinsic, self.reg_type("W"), [acc, u, x])

    def scale_of(self, x: S) -> S:
        """Twice the registers: the sub-scales s as float32, then -s * `ROUNDER`; both are exact."""
        s = self.cvt(W(x.regs))
        return S([*s.regs, *self.mul(s, self.splat_f(-ROUNDER)).regs])

    def st_scale(self, a: Addr, x: S) -> None:
        """Store 16 sub-scales, 128 bytes."""
        s, off = self._halves(self.scale_of(x))
        self.st_f(a, s)
        self.st_f(a + 64, off)

    def ld_scale(self, a: Addr) -> S:
        """16 sub-scales that `st_scale` stored."""
        return S([*self.ld_f(a).regs, *self.ld_f(a + 64).regs])

    def _halves(self, x: S) -> tuple[F, F]:
        return F(x.regs[: self.P]), F(x.regs[self.P :])

    def group_values(
        self,
        code: Code,
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        scales: Scales | None = None,
        ready: bool = False,
    ) -> list[list[F]]:
        """f32(i) by float32 operations that are exact: sums, products and i fit 22 to 24 bits.

        Accumulators start at the bits of `ROUNDER`, so that they end as those of ROUNDER + sum, and
        one fma takes it off and applies the sub-scale: s * (ROUNDER + sum) - s * ROUNDER. Converting
        is as dear as that, and a multiplication of int32 is two operations of ten cycles.
        """
        if scales is None:
            return super().group_values(code, n_strips, columns, codes, scales, ready)
        out: list[list[F]] = []
        for j, acc in self.accumulated(code, n_strips, columns, codes, self.bias, ready):
            new = []
            for s in range(n_strips):
                by, off = self._halves(scales(s, j))
                new.append([self.fma(self.f_of_w(W(a.regs)), by, off) for a in acc[s]])
            if out:
                new = [
                    [self.add(x, y) for x, y in zip(*pair, strict=True)]
                    for pair in zip(out, new, strict=True)
                ]
            out = new
        return out
