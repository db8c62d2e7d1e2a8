"""Blocks of a file -> strips: what loading a model spends its time on.

args   SOURCE blocks, rows one after the other · ROW_BYTES · DEST strips · N_BLOCKS of a row (for
       float types: values)                          nothing aliases
task   one strip of 16 rows; a last strip that is not full must be padded with zeros by the caller
does   the permutation of bits that the `pack` of the type's format does in numpy
exact  equals it in every byte
reads  nothing beyond the 16 rows
cost   bound by memory; a 16-byte piece of 16 rows is turned at a time: lane r becomes row r
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quant.formats.registers import strip_block
from quant.jit import kernel
from quant.simd import macro, v
from quant.simd.values import Addr, W
from quant.types import Type, get

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words

SOURCE, ROW_BYTES, DEST, N_BLOCKS = range(0, 32, 8)

LOW, HIGH = 0x0F0F0F0F, 0xF0F0F0F0  # nibbles of the four bytes of a lane


class Rows:
    """16 rows of a block while a kernel is traced."""

    def __init__(self, v: Words, source: Addr, stride: int) -> None:
        from llvmlite import ir

        self.v, self.piece = v, ir.VectorType(ir.IntType(32), 4)
        self.quads = [source, source + stride * 4, source + stride * 8, source + stride * 12]
        self.steps = [0, stride, stride * 2, stride * 3]

    def words(self, at: int, n: int = 4) -> list[W]:
        """n (a multiple of 4) words of 4 bytes from byte `at`; lane r of each is row r's."""
        return [w for k in range(0, n, 4) for w in self._four(at + 4 * k)]

    def _four(self, at: int) -> list[W]:
        v = self.v
        turned = []
        for quad in self.quads:
            a, b, c, d = (v.load_raw(quad + step + at, self.piece) for step in self.steps)
            ab, cd = v.shuffle(a, b, [0, 4, 1, 5]), v.shuffle(c, d, [0, 4, 1, 5])
            ef, gh = v.shuffle(a, b, [2, 6, 3, 7]), v.shuffle(c, d, [2, 6, 3, 7])
            even, odd = [0, 1, 4, 5], [2, 3, 6, 7]
            pairs = ((ab, cd, even), (ab, cd, odd), (ef, gh, even), (ef, gh, odd))
            turned.append([v.shuffle(x, y, lanes) for x, y, lanes in pairs])
        return [W(self._registers([quad[j] for quad in turned])) for j in range(4)]

    def _registers(self, quads: list[Any]) -> list[Any]:
        while len(quads) > self.v.P:
            lanes = list(range(2 * quads[0].type.count))
            quads = [
                self.v.shuffle(x, y, lanes) for x, y in zip(quads[::2], quads[1::2], strict=True)
            ]
        return quads


def nibbles(v: Words, low: W, high: W, which: int) -> W:
    """A unit: the low (0) or high (1) nibbles of two words, the first's low, the second's high."""
    if which == 0:
        high = v.shl_w(high, 4)
    else:
        low = v.lshr_w(low, 4)
    return v.or_w(v.and_w(low, v.splat_w(LOW)), v.and_w(high, v.splat_w(HIGH)))


def swap_index_bits(v: Words, x: W, a: int, b: int) -> W:
    """Bit i of every lane goes to where bits a > b of the number i are exchanged."""
    distance = (1 << a) - (1 << b)
    moved = sum(1 << i for i in range(32) if i >> b & 1 and not i >> a & 1)
    kept = v.and_w(x, v.splat_w(~(moved | moved << distance)))
    up = v.shl_w(v.and_w(x, v.splat_w(moved)), distance)
    return v.or_w(kept, v.or_w(up, v.and_w(v.lshr_w(x, distance), v.splat_w(moved))))


def bits_of_steps(v: Words, x: W) -> W:
    """Bit k of a lane, k = 4 s + j -> bit s of byte j."""
    for a, b in ((4, 1), (3, 0), (2, 1), (1, 0)):
        x = swap_index_bits(v, x, a, b)
    return x


def gather(v: Words, words: list[W], shift: int, width: int) -> W:
    """Field `shift` of `width` bits of every byte; that of word s goes to bits width * s."""
    mask = v.splat_w(((1 << width) - 1) * 0x01010101)
    out = None
    for s, w in enumerate(words):
        field = v.and_w(v.lshr_w(w, shift), mask) if shift else v.and_w(w, mask)
        field = v.shl_w(field, width * s) if s else field
        out = v.or_w(out, field) if out else field
    assert out is not None
    return out


def small(v: Words, t: Type, rows: Rows, dest: Addr) -> None:
    """d | m, if any | 32 bits above the nibbles, if any | 16 bytes of nibbles or 32 of codes."""
    layout, head = strip_block(t), 4 if t.minimum else 2
    first = rows.words(0)
    v.st_w_s16(dest, first[0])
    if t.minimum:
        v.st_w_s16(dest + 32, v.lshr_w(first[0], 16))
    codes = dest + layout.codes
    if t.bits == 8:
        for k, w in enumerate(rows.words(head, 8)):
            v.st_w(codes + 64 * k, w)
        return
    low = rows.words(head + (4 if t.bits == 5 else 0))
    for unit, (a, b, which) in enumerate(((0, 1, 0), (2, 3, 0), (0, 1, 1), (2, 3, 1))):
        v.st_w(codes + 64 * unit, nibbles(v, low[a], low[b], which))
    if t.bits == 5:
        above = first[1]
        if not t.minimum:
            above = v.or_w(v.lshr_w(first[0], 16), v.shl_w(first[1], 16))
        v.st_w(codes + 256, bits_of_steps(v, above))


def with_minima(v: Words, t: Type, rows: Rows, dest: Addr) -> None:
    """Q4_K, Q5_K: d, dmin | 12 bytes of scales | 32 of bits above, if any | 128 of nibbles."""
    layout = strip_block(t)
    first = rows.words(0)
    v.st_w_s16(dest, first[0])
    v.st_w_s16(dest + 32, v.lshr_w(first[0], 16))
    scales(v, first[1:], dest + layout.sub)
    at, codes = 48 if t.bits == 5 else 16, dest + layout.codes
    for g in range(4):
        w = rows.words(at + 32 * g, 8)
        for which in range(2):
            to = codes + layout.group * (2 * g + which)
            for unit in range(4):
                v.st_w(to + 64 * unit, nibbles(v, w[2 * unit], w[2 * unit + 1], which))
    if t.bits == 5:
        above = rows.words(16, 8)
        for g in range(8):
            v.st_w(codes + layout.group * g + 256, gather(v, above, g, 1))


def centred(v: Words, t: Type, rows: Rows, dest: Addr) -> None:
    """Q6_K: 128 bytes of nibbles | 64 of pairs of bits above | 16 scales | d."""
    layout = strip_block(t)
    last = rows.words(t.bytes - 16)
    v.st_w_s16(dest, v.lshr_w(last[3], 16))
    scales(v, rows.words(192), dest + layout.sub)
    for half in range(2):
        above = rows.words(128 + 32 * half, 8)
        for which in range(2):  # the 32 bytes of ql that serve groups `which` and `which` + 2
            low = rows.words(64 * half + 32 * which, 8)
            for n in (which, which + 2):
                for e in range(2):  # 16 values
                    to = dest + layout.codes + 192 * (8 * half + 2 * n + e)
                    for unit in range(2):
                        a, b = low[4 * e + 2 * unit], low[4 * e + 2 * unit + 1]
                        v.st_w(to + 64 * unit, nibbles(v, a, b, n // 2))
                    v.st_w(to + 128, gather(v, above[4 * e : 4 * e + 4], 2 * n, 2))


def scales(v: Words, words: list[W], dest: Addr) -> None:
    """Every byte of the words as a plane of 16 rows."""
    for k, w in enumerate(words):
        for j in range(4):
            v.st_w_s8(dest + 16 * (4 * k + j), v.lshr_w(w, 8 * j) if j else w)


@kernel(check="quant.checks.check_pack")
def pack_strip(qtype: str) -> KernelFn:
    """16 rows of blocks -> a strip."""
    t = get(qtype)
    size = t.bytes
    piece = 16 // size if t.kind == "float" else 0  # values of a 16-byte piece

    @macro
    def block(v: Words, source: Addr, stride: int, dest: Addr) -> None:
        write = small if t.kind == "small" else with_minima if t.minimum else centred
        write(v, t, Rows(v, source, stride), dest)

    @macro
    def values(v: Words, source: Addr, stride: int, dest: Addr) -> None:
        for k, w in enumerate(Rows(v, source, stride).words(0)):
            if size == 4:
                v.st_w(dest + 64 * k, w)
            else:
                v.st_w_s16(dest + 64 * k, w)
                v.st_w_s16(dest + (64 * k + 32), v.lshr_w(w, 16))

    @macro
    def one(v: Words, source: Addr, dest: Addr) -> None:
        if size == 4:
            v.st_i32(dest, v.ld_i32(source))
        else:
            v.st_u16(dest, v.ld_u16(source))

    def pack_blocks(args: int, task: int, thread: int) -> None:
        stride, n = v.ld_i64(args + ROW_BYTES), v.ld_i64(args + N_BLOCKS)
        source = v.ld_i64(args + SOURCE) + task * 16 * stride
        dest = v.ld_i64(args + DEST) + task * 16 * size * n
        for _ in range(n):
            block(source, stride, dest)
            source += size
            dest += 16 * size

    def pack_values(args: int, task: int, thread: int) -> None:
        stride, n = v.ld_i64(args + ROW_BYTES), v.ld_i64(args + N_BLOCKS)
        source = v.ld_i64(args + SOURCE) + task * 16 * stride
        dest = v.ld_i64(args + DEST) + task * 16 * size * n
        for _ in range(n // piece):
            values(source, stride, dest)
            source += 16
            dest += 256
        for _ in range(n % piece):
            for r in range(16):
                one(source + r * stride, dest + r * size)
            source += size
            dest += 16 * size

    return pack_values if t.kind == "float" else pack_blocks
