"""Plain LLVM vectors: right on every CPU of the architecture, whatever its extensions.

Half floats are converted in integer arithmetic, since without F16C LLVM would call a library.
"""

from __future__ import annotations

from quant.simd.isa.arm import Arm
from quant.simd.isa.x86 import X86
from quant.simd.values import Addr, F
from quant.simd.words import Words


class _Half(Words):
    """Half floats by shifts and one exact multiplication."""

    def ld_f16(self, a: Addr) -> F:
        """16 half floats -> float32, exact; NaN stays NaN."""
        h = self.ld_u16_w(a)
        mag = self.shl_w(self.and_w(h, self.splat_w(0x7FFF)), 13)
        scaled = self.w_of_f(self.mul(self.f_of_w(mag), self.splat_f(2.0**112)))
        special = self.lt_w(self.splat_w(0x0F7FFFFF), mag)  # infinity and NaN
        bits = self.select_w(special, self.or_w(mag, self.splat_w(0x7F800000)), scaled)
        # A signalling NaN becomes quiet, as the conversion instructions make it.
        nan = self.lt_w(self.splat_w(0x0F800000), mag)
        bits = self.select_w(nan, self.or_w(bits, self.splat_w(0x00400000)), bits)
        sign = self.shl_w(self.and_w(h, self.splat_w(0x8000)), 16)
        return self.f_of_w(self.or_w(bits, sign))

    def st_f16(self, a: Addr, x: F) -> None:
        """Round to half floats (nearest even, overflow to infinity) and store 16 of them."""
        w = self.w_of_f(x)
        mag = self.and_w(w, self.splat_w(0x7FFFFFFF))
        odd = self.and_w(self.lshr_w(mag, 13), self.splat_w(1))
        rounded = self.add_w(self.add_w(mag, self.splat_w(0xFFF - (112 << 23))), odd)
        normal = self.lshr_w(rounded, 13)
        # Below 2^-14: adding 0.5 leaves the half float's bits, rounded to nearest even, at the end
        # of the mantissa.
        tiny = self.sub_w(
            self.w_of_f(self.add(self.f_of_w(mag), self.splat_f(0.5))), self.splat_w(0x3F000000)
        )
        h = self.select_w(self.lt_w(mag, self.splat_w(113 << 23)), tiny, normal)
        h = self.select_w(self.lt_w(self.splat_w(0x477FEFFF), mag), self.splat_w(0x7C00), h)
        h = self.select_w(self.lt_w(self.splat_w(0x7F800000), mag), self.splat_w(0x7E00), h)
        sign = self.and_w(self.lshr_w(w, 16), self.splat_w(0x8000))
        self.st_w_s16(a, self.or_w(h, sign))


class GenericX86(_Half, X86):
    """Generic words on x86-64 (with fma)."""


class NoFmaX86(_Half, X86):
    """Words for x86-64 without fma: a product and a sum, rounded twice.

    The one place where results are not those of the contract: close to them, not equal.
    """

    isa = "nofma"

    def fma(self, x: F, y: F, z: F) -> F:
        """x * y + z with two roundings."""
        return self.add(self.mul(x, y), z)

    def fma_f32(self, x: float, y: float, z: float) -> float:
        """The same of scalars."""
        return self.lane_f(self.fma(self.splat_f(x), self.splat_f(y), self.splat_f(z)), 0)


class GenericArm(_Half, Arm):
    """Generic words on 64-bit Arm."""
