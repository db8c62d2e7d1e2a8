"""The register tiles of attention: scores of a few columns against keys, values weighted by them.

A column is one (query, head). Tiles hold 6, 4, 3, 2 or 1 columns by as many key blocks or strips of
values (1, 2 or 4) as leave registers for them: few columns by one strip would be too few chains to
hide the latency of fma. Every accumulator is one chain in the contract's order (attention.py), so
the shape of a tile changes no bit.
What comes next is asked into the second-level cache: into the first, the few lines that a core can
have on their way there were the limit (2 threads, 5 to 10 % of decode at depth).
Keys and values of f16 and q8_0 pages become float32 in registers; code * d is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gguf_runtime.cache.pages import GROUP, KEYS
from gguf_runtime.kernels.attention_column import high, low
from quant.simd import Addr, F, macro, v

if TYPE_CHECKING:
    from quant.simd.words import Words

WIDTHS = (6, 4, 3, 2, 1)

KEY_ROW = {"f16": 2 * KEYS, "f32": 4 * KEYS, "q8_0": KEYS}  # bytes of one dimension of 16 keys
STRIP = {"f16": 32, "f32": 64, "q8_0": 16}  # bytes of 16 values of one row
ACCUMULATORS = {
    "avx512vnni": 24,
    "avxvnni": 8,
    "avx2": 8,
    "neondot": 24,
}  # registers, where more than a strip fits

Step = Callable[..., Any]


def wide(v: Words, columns: int) -> int:
    """Key blocks, or strips of values, of a register tile."""
    n = ACCUMULATORS.get(v.isa, 0) // (v.P * columns)
    return 4 if n >= 4 else 2 if n >= 2 else 1


def load(v: Words, cache: str, a: Addr) -> F:
    """16 stored elements as float32, not yet scaled."""
    if cache == "f16":
        return v.ld_f16(a)
    return v.ld_f(a) if cache == "f32" else v.cvt(v.ld_s8_w(a))


# ---- scores ------------------------------------------------------------------------------------


def tile_scores(cache: str, columns: int) -> Step:
    """Helper: scores of `columns` columns for `tile()` key blocks."""
    row = KEY_ROW[cache]
    group_bytes = 2 * KEYS

    @macro
    def tile(v: Words) -> int:
        return wide(v, columns)

    @macro
    def zeros(v: Words) -> tuple[F, ...]:
        return (v.zero_f(),) * (columns * wide(v, columns))

    @macro
    def queries(v: Words, table: Addr) -> tuple[int, ...]:
        return tuple(v.ld_i64(table + 8 * c) for c in range(columns))

    @macro
    def scales(v: Words, keys: Addr, step: int) -> tuple[F, ...]:
        return tuple(v.ld_f16(keys + k * step) for k in range(wide(v, columns)))

    def fetch_ahead(v: Words, near: Addr) -> None:
        for k in range(0, wide(v, columns) * row, 64):
            v.prefetch(near + k, 2)

    @macro
    def plain(
        v: Words, acc: tuple[F, ...], keys: Addr, step: int, q: tuple[int, ...], d: int,
        near: Addr,
    ) -> Any:  # fmt: skip
        fetch_ahead(v, near)
        x = [load(v, cache, keys + k * step) for k in range(wide(v, columns))]
        return fma_all(v, acc, x, [v.bc_f(a + 4 * d) for a in q])

    @macro
    def scaled(
        v: Words, acc: tuple[F, ...], keys: Addr, step: int, q: tuple[int, ...], d: int,
        near: Addr, s: tuple[F, ...],
    ) -> Any:  # fmt: skip
        fetch_ahead(v, near)
        x = [v.mul(load(v, cache, keys + k * step), s[k]) for k in range(wide(v, columns))]
        return fma_all(v, acc, x, [v.bc_f(a + 4 * d) for a in q])

    @macro
    def store(v: Words, acc: tuple[F, ...], out: Addr) -> None:
        n = wide(v, columns)
        for i, x in enumerate(acc):
            v.st_f(out + i // n * 256 + i % n * 64, x)

    def scores(
        keys: Addr, step: int, table: Addr, dim: int, blocks: int, out: Addr, ahead: int
    ) -> None:
        q = queries(table)
        for k in range(0, blocks, tile()):
            x, acc = keys + k * step, zeros()
            near = x + ahead
            for d in range(dim):
                acc = plain(acc, x, step, q, d, near)
                x += row
                near += tile() * row
            store(acc, out + 64 * k)

    def scores_scaled(
        keys: Addr, step: int, table: Addr, dim: int, blocks: int, out: Addr, ahead: int
    ) -> None:
        q = queries(table)
        for k in range(0, blocks, tile()):
            x, acc = keys + k * step, zeros()
            near = x + ahead
            for g in range(0, dim, GROUP):
                s = scales(x, step)
                x += group_bytes
                for d in range(g, g + GROUP):
                    acc = scaled(acc, x, step, q, d, near, s)
                    x += row
                    near += tile() * row
            store(acc, out + 64 * k)

    return scores_scaled if cache == "q8_0" else scores


def fma_all(v: Words, acc: tuple[F, ...], x: list[F], w: list[F]) -> tuple[F, ...]:
    """Every column's weight times every strip, added to its accumulator (columns outer)."""
    n = len(x)
    return tuple(v.fma(x[i % n], w[i // n], a) for i, a in enumerate(acc))


def dispatch_scores(cache: str) -> Step:
    """Helper: scores of n columns for the key blocks below `last`, [column][64] float32 at out.

    What lies `ahead` bytes further is asked from memory meanwhile, spread evenly.
    """
    of6, of4, of3, of2, of1 = (tile_scores(cache, c) for c in WIDTHS)
    row = KEY_ROW[cache]
    scale = 2 * KEYS if cache == "q8_0" else 0

    def scores(keys: Addr, table: Addr, n: int, dim: int, last: int, out: Addr, ahead: int) -> None:
        step, blocks = dim * row + (dim >> 5) * scale, (last + KEYS - 1) // KEYS
        while n > 0:
            w = min(n, 3)
            if n >= 6:
                w = 6
                of6(keys, step, table, dim, blocks, out, ahead)
            elif n >= 4:
                w = 4
                of4(keys, step, table, dim, blocks, out, ahead)
            elif n == 3:
                of3(keys, step, table, dim, blocks, out, ahead)
            elif n == 2:
                of2(keys, step, table, dim, blocks, out, ahead)
            else:
                of1(keys, step, table, dim, blocks, out, ahead)
            table += 8 * w
            out += 256 * w
            n -= w

    return scores


# ---- values ------------------------------------------------------------------------------------


def tile_values(cache: str, columns: int) -> Step:
    """Helper: adds p * value of positions first .. end - 1 to the rows of `columns` columns."""
    strip, scaled = STRIP[cache], cache == "q8_0"

    @macro
    def tile(v: Words) -> int:
        return wide(v, columns)

    def fetch_n(v: Words, o: Addr, size: int, n: int) -> tuple[F, ...]:
        return tuple(v.ld_f(o + c * size + 64 * k) for c in range(columns) for k in range(n))

    def step_n(
        v: Words, acc: tuple[F, ...], x: Addr, scales: Addr, p: Addr, near: Addr, n: int
    ) -> Any:
        for k in range(0, strip * n, 64):
            v.prefetch(near + k, 2)
        rows = [load(v, cache, x + strip * k) for k in range(n)]
        if scaled:  # strips 0 and 1 share a group of 32 values, 2 and 3 the next
            rows = [v.mul(r, v.bc_f(scales + 256 * (k // 2))) for k, r in enumerate(rows)]
        return fma_all(v, acc, rows, [v.bc_f(p + 256 * c) for c in range(columns)])

    def keep_n(v: Words, acc: tuple[F, ...], o: Addr, size: int, n: int) -> None:
        for i, x in enumerate(acc):
            v.st_f(o + i // n * size + 64 * (i % n), x)

    @macro
    def fetch(v: Words, o: Addr, size: int) -> tuple[F, ...]:
        return fetch_n(v, o, size, wide(v, columns))

    @macro
    def step(v: Words, acc: tuple[F, ...], x: Addr, scales: Addr, p: Addr, near: Addr) -> Any:
        return step_n(v, acc, x, scales, p, near, wide(v, columns))

    @macro
    def keep(v: Words, acc: tuple[F, ...], o: Addr, size: int) -> None:
        keep_n(v, acc, o, size, wide(v, columns))

    @macro
    def fetch1(v: Words, o: Addr, size: int) -> tuple[F, ...]:
        return fetch_n(v, o, size, 1)

    @macro
    def step1(v: Words, acc: tuple[F, ...], x: Addr, scales: Addr, p: Addr, near: Addr) -> Any:
        return step_n(v, acc, x, scales, p, near, 1)

    @macro
    def keep1(v: Words, acc: tuple[F, ...], o: Addr, size: int) -> None:
        keep_n(v, acc, o, size, 1)

    def values(
        x: Addr, scales: Addr, p: Addr, first: int, end: int, o: Addr, size: int, ahead: int
    ) -> None:
        n = size >> 6
        row = n * strip
        x += first * row
        k = 0
        while k + tile() <= n:
            acc = fetch(o + 64 * k, size)
            a, s = x + k * strip, scales + 256 * (k >> 1)
            for t in range(first, end):
                acc = step(acc, a, s + 4 * t, p + 4 * t, a + ahead)
                a += row
            keep(acc, o + 64 * k, size)
            k += tile()
        while k < n:
            one = fetch1(o + 64 * k, size)
            a, s = x + k * strip, scales + 256 * (k >> 1)
            for t in range(first, end):
                one = step1(one, a, s + 4 * t, p + 4 * t, a + ahead)
                a += row
            keep1(one, o + 64 * k, size)
            k += 1

    return values


def dispatch_values(cache: str) -> Step:
    """Helper: a block's values, weighted, onto the out of n columns.

    Columns see different positions: those that all of a tile see are done together, the ragged ends
    before and after column by column, so hidden values are never touched.
    """
    of6, of4, of3, of2, of1 = (tile_values(cache, c) for c in WIDTHS)

    def together(
        x: Addr, scales: Addr, p: Addr, w: int, first: int, end: int, o: Addr, size: int, ahead: int
    ) -> None:
        """Positions that all w > 1 columns see."""
        if w == 6:
            of6(x, scales, p, first, end, o, size, ahead)
        elif w == 4:
            of4(x, scales, p, first, end, o, size, ahead)
        elif w == 3:
            of3(x, scales, p, first, end, o, size, ahead)
        else:
            of2(x, scales, p, first, end, o, size, ahead)

    def values(
        x: Addr, scales: Addr, at: Addr, start: int, window: int, p: Addr, n: int, o: Addr,
        size: int, ahead: int,
    ) -> None:  # fmt: skip
        while n > 0:
            w = n
            if n >= 6:
                w = 6
            elif n == 5:
                w = 4
            # What all see is seen by the last column from `lo` on and by the first to before `hi`.
            lo, hi = low(at + 8 * (w - 1), start, window), high(at, start)
            if w == 1 or lo >= hi:
                lo, hi = 64, 64
            end = 0
            for phase in range(3):  # before, together, after
                first = end
                end = lo if phase == 0 else hi if phase == 1 else 64
                if phase == 1 and first < end:
                    together(x, scales, p, w, first, end, o, size, ahead)
                elif first < end:
                    for c in range(w):
                        a = max(low(at + 8 * c, start, window), first)
                        e = min(high(at + 8 * c, start), end)
                        if a < e:
                            of1(x, scales, p + 256 * c, a, e, o + c * size, size, ahead)
            at += 8 * w
            p += 256 * w
            o += w * size
            n -= w

    return values


# ---- scales of q8_0 values ---------------------------------------------------------------------


def unpack_scales(x: Addr, to: Addr, groups: int) -> None:
    """Halves [group][64] -> float32 [group][64]."""
    for i in range(0, groups * 64, 16):
        v.st_f(to + 4 * i, v.ld_f16(x + 2 * i))
