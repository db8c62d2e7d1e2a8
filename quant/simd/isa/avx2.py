"""AVX2 + FMA + F16C: two registers a strip; dot products in int16 pairs by vpmaddubsw.

vpmaddubsw adds two products of an unsigned and a signed byte in int16. Its results are added in
int16 too and widened once per sub-group by vpmaddwd, which multiplies by the sub-scale at the same
time. Only the final value must fit, so the accumulator starts at the correction that centres the
codes and may wrap on the way.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from quant.simd.base import I16, I32
from quant.simd.isa.x86 import X86
from quant.simd.layout import SUM16, SUM32, Codes
from quant.simd.values import A, Addr, B, S, W


class Avx2(X86):
    """Words for AVX2."""

    isa = "avx2"
    P = 2
    tile = (1, 3)
    tile_float = (1, 4)
    widths = (2, 3, 4)
    asm_register = "x"

    def reg_type(self, kind: str) -> Any:
        """LLVM type of one register: accumulators and sub-scales are int16 pairs here."""
        return super().reg_type("H" if kind in "AS" else kind)

    def _maddubs(self, u: Any, x: Any) -> Any:
        return self.intrinsic("llvm.x86.avx2.pmadd.ub.sw", self.reg_type("H"), [u, x])

    def _madd(self, x: Any, y: Any) -> Any:
        return self.intrinsic("llvm.x86.avx2.pmadd.wd", self.reg_type("W"), [x, y])

    def tile_of(self, codes: Codes, planes: int) -> tuple[int, int]:
        """Two planes of activations take two accumulators: one column fits."""
        return 1, 3 if planes == 1 else 1

    def planes_of(self, codes: Codes) -> tuple[tuple[Codes, int], ...]:
        """Signed bytes as 16 * (high - 8) + low, two sets of 4-bit codes.

        Each takes two operations where the sign trick takes four and a temporary.
        """
        if not codes.signed:
            return super().planes_of(codes)
        return (Codes(4, 8, False, codes.group), 16), (Codes(4, 0, False, codes.group), 1)

    def halves(self, x: B, codes: Codes) -> tuple[B, ...]:
        """Bytes from the strip -> one plane, or the high and the low half of signed ones."""
        if not codes.signed:
            return super().halves(x, codes)
        unsigned = self.xor_b(x, 128)
        return self.bits_b(unsigned, 4, 15), self.bits_b(unsigned, 0, 15)

    def steps_held(self, codes: Codes) -> int:
        """15 * 127 * 16, 16 * 127 * 16, 31 * 127 * 8 fit int16; 8-bit codes are held as int32."""
        return 4 if codes.bits == 5 and not codes.center else 8

    def acc_start(self, codes: Codes, sums: Addr, bias: int = 0, ready: bool = False) -> A:
        """Accumulator at -center * the two sums, at `sums`, of this sub-group's activations."""
        if codes.signed or not codes.center:
            return A([self.const("H", 0)] * self.P)
        pair = self.b.bitcast(
            self.splat_reg(self.load_raw(sums, I32), self.lanes), self.reg_type("H")
        )
        if not ready:
            pair = self.b.mul(pair, self.const("H", -codes.center))
        return A([pair] * self.P)

    def starts(self, sums: Addr, out: Addr, codes: Codes, bias: int) -> None:
        """16 pairs of sums -> what accumulators start at, 64 bytes."""
        k = self.const("H", -codes.center)
        for p in range(self.P):
            x = self.load_raw(sums + 32 * p, self.reg_type("H"))
            self.store_raw(out + 32 * p, self.b.mul(x, k))

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """acc + sums of 2 products in each int16 of a register, by vpmaddubsw."""
        if not codes.signed:
            return self.b.add(acc, self._maddubs(u, x))
        # |u| * (x with the sign of u): 128 * 127 * 2 fits, and the sum is widened at once.
        zero = self.const("B", 0)
        size = self.b.select(self.b.icmp_signed("<", u, zero), self.b.sub(zero, u), u)
        signed = self.intrinsic("llvm.x86.avx2.psign.b", self.reg_type("B"), [x, u])
        w = self._madd(self._maddubs(size, signed), self.const("H", 1))
        return self.b.bitcast(
            self.b.add(self.b.bitcast(acc, self.reg_type("W")), w), self.reg_type("H")
        )

    def acc_w(self, acc: A, scale: S | None, codes: Codes) -> W:
        """The accumulator times the sub-scale, int32."""
        if codes.signed:
            return self.each(W, lambda r: self.b.bitcast(r, self.reg_type("W")), acc)
        if scale is None:
            return self.each(W, lambda r: self._madd(r, self.const("H", 1)), acc)
        return self.each(W, self._madd, acc, scale)

    def scale_reg(self, x: Any, signed: bool) -> Any:
        """8 bytes -> one register of sub-scales, each twice as int16."""
        pairs = self.shuffle(x, self.undef(x.type), [k // 2 for k in range(2 * self.lanes)])
        return (self.b.sext if signed else self.b.zext)(pairs, self.reg_type("S"))

    def store_sums(self, w0: W, w1: W, sums: Addr, g: int) -> None:
        """Sums of group g of a block, 32 codes in two strips, as int16 pairs into the tables."""
        s0, s1 = (self._pair_sums(w) for w in (w0, w1))
        both = self.b.add(s0, s1)
        for a, s in ((SUM16 + g * 8, s0), (SUM16 + g * 8 + 4, s1), (SUM32 + g * 4, both)):
            self.store_raw(sums + a, s)

    def _pair_sums(self, w: W) -> Any:
        """(sum over k % 4 < 2, sum over the others) of 16 codes, <2 x int16>."""
        x = self.b.add(w.regs[0], w.regs[1])  # lane j: k = j and j + 8, so k % 4 is kept
        u = self.undef(x.type)
        x = self.b.add(self.shuffle(x, u, [0, 1, 2, 3]), self.shuffle(x, u, [4, 5, 6, 7]))
        u = self.undef(x.type)
        x = self.b.add(self.shuffle(x, u, [0, 2]), self.shuffle(x, u, [1, 3]))
        return self.b.trunc(x, ir.VectorType(I16, 2))
