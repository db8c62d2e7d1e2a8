"""Integer dot products of codes and activations: the heart of the matmul.

A *group* is 32 values of k: 8 steps of 4, a byte each. `group_dots` gives, for every strip and
column of a register tile, the exact int32

    i = sum over sub-groups of  sub_scale * sum (code - center) * q

How the sum is formed is the instruction set's own (int16 pairs that start at the centring
correction on AVX2, int32 elsewhere); i is the same. The layout of an activation block stands in
`quant.simd.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir

from quant.simd.base import I8, I32
from quant.simd.layout import SUM16, SUM32, Codes
from quant.simd.memory import MemoryWords
from quant.simd.scalars import ScalarWords
from quant.simd.values import A, Addr, B, F, S, W

Code = Callable[[int, int], B]  # (strip, step of 4 values) -> bytes as `dot` takes them
Scales = Callable[[int, int], S]  # (strip, sub-group) -> its sub-scales, of `group_values` scaled


class DotWords(MemoryWords, ScalarWords):
    """`group_dots` over primitives that an instruction set may replace."""

    # 8-bit codes stand signed in the strip; VNNI wants them unsigned (+128).
    flip_signed = False
    # Columns that the matmul of few takes straight from a strip, ascending.
    widths = (1, 2, 3)
    # What accumulators of `group_values` with sub-scales start at, beside the centring correction.
    bias = 0

    # ---- codes and tiles -----------------------------------------------------------------------

    def codes_of(self, codes: Codes) -> Codes:
        """The codes as `dot` takes them on this instruction set."""
        if codes.signed and self.flip_signed:
            return Codes(codes.bits, 128, False, codes.group)
        return codes

    def stand(self, x: B, codes: Codes) -> B:
        """Bytes from the strip -> bytes as `dot` takes them."""
        return self.xor_b(x, 128) if codes.signed and self.flip_signed else x

    def planes_of(self, codes: Codes) -> tuple[tuple[Codes, int], ...]:
        """The planes of bytes in which a panel keeps codes, and what each counts."""
        return ((self.codes_of(codes), 1),)

    def halves(self, x: B, codes: Codes) -> tuple[B, ...]:
        """Bytes from the strip -> those planes."""
        return (self.stand(x, codes),)

    def tile_of(self, codes: Codes, planes: int) -> tuple[int, int]:
        """Register tile (strips, columns) of a panel; two planes double a column's accumulators."""
        strips, columns = self.tile
        return strips, max(1, columns // planes)

    # ---- sub-scales ----------------------------------------------------------------------------

    def ld_u8_s(self, a: Addr) -> S:
        """16 uint8 -> sub-scales."""
        return self.each_p(S, lambda p: self.scale_reg(self.narrow(a, p, I8, 1), False))

    def ld_s8_s(self, a: Addr) -> S:
        """16 int8 -> sub-scales."""
        return self.each_p(S, lambda p: self.scale_reg(self.narrow(a, p, I8, 1), True))

    def scale_reg(self, x: Any, signed: bool) -> Any:
        """16 / P bytes -> one register of sub-scales."""
        return (self.b.sext if signed else self.b.zext)(x, self.reg_type("S"))

    def splat_s(self, x: int) -> S:
        """A number as sub-scale of every row."""
        return S([self.const("S", x)] * self.P)

    def scale_of(self, x: S) -> S:
        """Sub-scales in the form that `group_values` takes."""
        return x

    def st_scale(self, a: Addr, x: S) -> None:
        """Store 16 sub-scales, at most 128 bytes, in a form of the instruction set's own."""
        self.store(a, x)

    def ld_scale(self, a: Addr) -> S:
        """16 sub-scales that `st_scale` stored."""
        return self.load(S, a)

    # ---- accumulators --------------------------------------------------------------------------

    def steps_held(self, codes: Codes) -> int:
        """Steps of 4 that an accumulator can hold before it must be taken out."""
        return 8

    def acc_start(self, codes: Codes, sums: Addr, bias: int = 0, ready: bool = False) -> A:
        """Accumulator at `bias` - center * the sum, at `sums`, of this sub-group's activations.

        ready: `starts` has been there.
        """
        if not codes.center:
            return A([self.const("A", bias)] * self.P)
        x = self.load_raw(sums, I32)
        if not ready:
            x = self.b.mul(x, ir.Constant(I32, -codes.center))
            x = self.b.add(x, ir.Constant(I32, bias))
        return A([self.splat_reg(x, self.lanes)] * self.P)

    def starts(self, sums: Addr, out: Addr, codes: Codes, bias: int) -> None:
        """16 sums of activations -> what accumulators start at, 64 bytes: for many strips."""
        k, c = self.const("W", -codes.center), self.const("W", bias)
        self.st_w(out, self.each(W, lambda r: self.b.add(self.b.mul(r, k), c), self.ld_w(sums)))

    def dot(self, acc: A, u: B, x: B, codes: Codes) -> A:
        """acc + sum of 4 products in each lane; codes u, activations x in +-127."""
        return self.each(A, lambda a, c, q: self.keep(self.dot_reg(a, c, q, codes)), acc, u, x)

    def dot_reg(self, acc: Any, u: Any, x: Any, codes: Codes) -> Any:
        """`dot` of one register. Portable: products of bytes as int16 (255 * 127 fits), widened."""
        hu, hx = (self.b.bitcast(r, self.reg_type("H")) for r in (u, x))
        eight = self.const("H", 8)
        if codes.signed:
            ue, uo = self.b.ashr(self.b.shl(hu, eight), eight), self.b.ashr(hu, eight)
        else:
            ue, uo = self.b.and_(hu, self.const("H", 255)), self.b.lshr(hu, eight)
        xe, xo = self.b.ashr(self.b.shl(hx, eight), eight), self.b.ashr(hx, eight)
        for p in (self.b.mul(ue, xe), self.b.mul(uo, xo)):
            w = self.b.bitcast(p, self.reg_type("W"))
            low = self.b.ashr(self.b.shl(w, self.const("W", 16)), self.const("W", 16))
            acc = self.b.add(acc, self.b.add(low, self.b.ashr(w, self.const("W", 16))))
        return acc

    def acc_w(self, acc: A, scale: S | None, codes: Codes) -> W:
        """The accumulator times the sub-scale, int32."""
        if scale is None:
            return W(acc.regs)
        return self.each(W, self.b.mul, acc, scale)

    # ---- a group -------------------------------------------------------------------------------

    def accumulated(
        self,
        code: Code,
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        bias: int = 0,
        ready: bool = False,
    ) -> Iterator[tuple[int, list[list[A]]]]:
        """Sums of one group as they fill up: (sub-group, accumulator of each strip and column)."""
        n_sub = codes.group // 4
        hold = min(n_sub, self.steps_held(codes))
        acc = [[A([]) for _ in columns] for _ in range(n_strips)]
        for k in range(8):
            u = [code(s, k) for s in range(n_strips)]
            # A sub-group is centred once, also where it is held in several accumulators.
            center = codes.center if k % n_sub == 0 else 0
            start = Codes(codes.bits, center, codes.signed, codes.group)
            for c, (q, sums) in enumerate(columns):
                x = self.bc_b(q + 4 * k)
                for s in range(n_strips):
                    if k % hold == 0:
                        acc[s][c] = self.acc_start(start, sums + k // n_sub * 4, bias, ready)
                    acc[s][c] = self.dot(acc[s][c], u[s], x, codes)
            if k % hold == hold - 1:
                yield k // n_sub, acc

    def group_dots(
        self,
        code: Code,
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        scales: Scales | None = None,
        ready: bool = False,
    ) -> list[list[W]]:
        """i of one group for each strip and column.

        A column is (address of the 32 activations, address of their sums: one per sub-group of 16
        if codes.group is 16; ready: of what `starts` made of them). codes: from `codes_of`.
        """
        out: list[list[W]] = []
        for j, acc in self.accumulated(code, n_strips, columns, codes, 0, ready):
            by = [scales(s, j) if scales else None for s in range(n_strips)]
            new = [[self.acc_w(a, by[s], codes) for a in row] for s, row in enumerate(acc)]
            out = _added(self.add_w, out, new)
        return out

    def group_values(
        self,
        code: Code,
        n_strips: int,
        columns: Sequence[tuple[Addr, Addr]],
        codes: Codes,
        scales: Scales | None = None,
        ready: bool = False,
    ) -> list[list[F]]:
        """f32(i) of one group, where i fits 24 bits (int8 activations): see `group_dots`.

        scales: from `scale_of`. ready: by `starts` with this instruction set's `bias`.
        """
        ints = self.group_dots(code, n_strips, columns, codes, scales, ready)
        return [[self.cvt(i) for i in row] for row in ints]

    def store_sums(self, w0: W, w1: W, sums: Addr, g: int) -> None:
        """Sums of group g of a block, 32 codes in two strips, into the tables at `sums`."""
        s0, s1 = self.hsum_w(w0), self.hsum_w(w1)
        self.st_i32(sums + SUM16 + g * 8, s0)
        self.st_i32(sums + SUM16 + g * 8 + 4, s1)
        self.st_i32(sums + SUM32 + g * 4, s0 + s1)


def _added(add: Callable[[W, W], W], a: list[list[W]], b: list[list[W]]) -> list[list[W]]:
    """a + b of each strip and column; b alone where a is still empty."""
    if not a:
        return b
    return [[add(x, y) for x, y in zip(r, t, strict=True)] for r, t in zip(a, b, strict=True)]
