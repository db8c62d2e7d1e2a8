"""Attention for many columns: a block of keys or values becomes float32 once, for all tiles of 6.

64 dimensions of 64 keys, or 64 positions of 4 strips of values, fill SHARED_BYTES of the thread's
scratch, [64][4 strips][16] both times: an outer product of columns and strips for each of the 64 rows.
So one tile serves scores, where weights are queries, and values, where they are probabilities; the
accumulators of a chain wait in memory between two fills, which changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gguf_runtime.cache.pages import BLOCKS, GROUP, KEYS, POSITIONS
from gguf_runtime.kernels.attention_column import high, low
from gguf_runtime.kernels.attention_tiles import KEY_ROW, STRIP, fma_all, load, tile, wide
from quant.simd import Addr, F, macro, v

if TYPE_CHECKING:
    from quant.simd.words import Words

WIDTH = 6  # columns of a tile; items with more columns have a multiple of them
ROW = 64 * BLOCKS  # bytes of a row of the shared part
SHARED_BYTES = ROW * POSITIONS

Step = Callable[..., Any]


def tile_shared(columns: int, whole: bool) -> Step:
    """Helper: acc += weight * row for n rows; `tile()` strips of `columns` columns, or one strip.

    Weights of column c: float32 from the address at table + 8 c on, `at` bytes further.
    """

    def strips(v: Words) -> int:
        return wide(v) if whole else 1

    @macro
    def fetch(v: Words, acc: Addr, size: int) -> tuple[F, ...]:
        places = ((c, k) for c in range(columns) for k in range(strips(v)))
        return tuple(v.ld_f(acc + c * size + 64 * k) for c, k in places)

    @macro
    def weights(v: Words, table: Addr, at: int) -> tuple[int, ...]:
        return tuple(v.ld_i64(table + 8 * c) + at for c in range(columns))

    @macro
    def step(v: Words, acc: tuple[F, ...], x: Addr, w: tuple[int, ...], at: int) -> Any:
        rows = [v.ld_f(x + 64 * k) for k in range(strips(v))]
        return fma_all(v, acc, rows, [v.bc_f(a + at) for a in w])

    @macro
    def keep(v: Words, acc: tuple[F, ...], to: Addr, size: int) -> None:
        n = strips(v)
        for i, x in enumerate(acc):
            v.st_f(to + i // n * size + 64 * (i % n), x)

    def shared(x: Addr, table: Addr, at: int, n: int, to: Addr, size: int) -> None:
        w = weights(table, at)
        acc = fetch(to, size)
        for i in range(0, 4 * n, 4):
            acc = step(acc, x, w, i)
            x += ROW
        keep(acc, to, size)

    return shared


# ---- scores ------------------------------------------------------------------------------------


def unpack_keys(cache: str) -> Step:
    """Helper: dimensions d .. d + n - 1 (d a multiple of 64) of a block's keys, to the shared part."""
    row, scaled = KEY_ROW[cache], cache == "q8_0"

    @macro
    def plain(v: Words, keys: Addr, step: int, to: Addr) -> None:
        for k in range(BLOCKS):
            v.st_f(to + 64 * k, load(v, cache, keys + k * step))

    @macro
    def scales(v: Words, keys: Addr, step: int) -> tuple[F, ...]:
        return tuple(v.ld_f16(keys + k * step) for k in range(BLOCKS))

    @macro
    def times(v: Words, keys: Addr, step: int, s: tuple[F, ...], to: Addr) -> None:
        for k in range(BLOCKS):
            v.st_f(to + 64 * k, v.mul(load(v, cache, keys + k * step), s[k]))

    def unpack(keys: Addr, dim: int, d: int, n: int, to: Addr) -> None:
        keys += d * row
        for i in range(n):
            plain(keys + i * row, dim * row, to + i * ROW)

    def unpack_scaled(keys: Addr, dim: int, d: int, n: int, to: Addr) -> None:
        step = dim * row + (dim >> 5) * (2 * KEYS)
        keys += d * row + (d >> 5) * (2 * KEYS)
        for g in range(0, n, GROUP):
            s = scales(keys, step)
            keys += 2 * KEYS
            for i in range(g, g + GROUP):
                times(keys, step, s, to + i * ROW)
                keys += row

    return unpack_scaled if scaled else unpack


def shared_scores(cache: str) -> Step:
    """Helper: scores of n columns, [column][64] float32 at out, for key blocks below `last`."""
    unpack = unpack_keys(cache)
    of6 = tile_shared(WIDTH, True)

    def scores(
        keys: Addr, table: Addr, n: int, dim: int, last: int, out: Addr, shared: Addr
    ) -> None:
        for i in range(0, n * ROW, 64):
            v.st_f(out + i, v.zero_f())
        for d in range(0, dim, 64):
            rows = min(dim - d, 64)
            unpack(keys, dim, d, rows, shared)
            for c in range(0, n, WIDTH):
                for k in range(0, (last + KEYS - 1) // KEYS, tile()):
                    of6(shared + 64 * k, table + 8 * c, 4 * d, rows, out + c * ROW + 64 * k, ROW)

    return scores


# ---- values ------------------------------------------------------------------------------------


def unpack_values(cache: str) -> Step:
    """Helper: `strips` strips of positions first .. end - 1, to the shared part."""
    strip, scaled = STRIP[cache], cache == "q8_0"

    @macro
    def one(v: Words, x: Addr, scale: Addr, to: Addr) -> None:
        row = load(v, cache, x)
        v.st_f(to, v.mul(row, v.bc_f(scale)) if scaled else row)

    @macro
    def four(v: Words, x: Addr, scale: Addr, to: Addr) -> None:
        for k in range(BLOCKS):
            one.fn(v, x + k * strip, scale + 256 * (k // 2), to + 64 * k)

    def unpack(
        x: Addr, row: int, scales: Addr, strips: int, first: int, end: int, to: Addr
    ) -> None:
        for t in range(first, end):
            if strips == BLOCKS:
                four(x + t * row, scales + 4 * t, to + t * ROW)
            else:
                for k in range(strips):
                    a = scales + 256 * (k >> 1) + 4 * t
                    one(x + t * row + k * strip, a, to + t * ROW + 64 * k)

    return unpack


def shared_values(cache: str) -> Step:
    """Helper: a block's values, weighted, onto the out of n columns.

    What all columns of a tile see is done together, the ragged ends before and after column by
    column, so hidden values are never touched.
    """
    unpack, strip = unpack_values(cache), STRIP[cache]
    six, six1, one, one1 = (tile_shared(c, w) for c in (WIDTH, 1) for w in (True, False))

    def together(x: Addr, table: Addr, at: int, n: int, strips: int, o: Addr, size: int) -> None:
        k = 0
        while k + tile() <= strips:
            six(x + 64 * k, table, at, n, o + 64 * k, size)
            k += tile()
        while k < strips:
            six1(x + 64 * k, table, at, n, o + 64 * k, size)
            k += 1

    def alone(x: Addr, table: Addr, at: int, n: int, strips: int, o: Addr, size: int) -> None:
        k = 0
        while k + tile() <= strips:
            one(x + 64 * k, table, at, n, o + 64 * k, size)
            k += tile()
        while k < strips:
            one1(x + 64 * k, table, at, n, o + 64 * k, size)
            k += 1

    def values(
        x: Addr, scales: Addr, at: Addr, start: int, window: int, table: Addr, n: int, o: Addr,
        size: int, shared: Addr,
    ) -> None:  # fmt: skip
        strips = size >> 6
        first, last = low(at, start, window), high(at + 8 * (n - 1), start)
        for j in range(0, strips, BLOCKS):
            m = min(strips - j, BLOCKS)
            unpack(x + j * strip, strips * strip, scales + 128 * j, m, first, last, shared)
            for c in range(0, n, WIDTH):
                # What all see is seen by the last column from `lo` on, by the first to before `hi`.
                a, to = at + 8 * c, o + c * size + 64 * j
                lo, hi = low(a + 8 * (WIDTH - 1), start, window), high(a, start)
                if lo >= hi:
                    lo, hi = 64, 64
                end = 0
                for phase in range(3):  # before, together, after
                    begin = end
                    end = lo if phase == 0 else hi if phase == 1 else 64
                    if phase == 1 and begin < end:
                        row = shared + begin * ROW
                        together(row, table + 8 * c, 4 * begin, end - begin, m, to, size)
                    elif begin < end:
                        for i in range(WIDTH):
                            f = max(low(a + 8 * i, start, window), begin)
                            e = min(high(a + 8 * i, start), end)
                            if f < e:
                                row = shared + f * ROW
                                alone(
                                    row, table + 8 * (c + i), 4 * f, e - f, m, to + i * size, size
                                )

    return values
