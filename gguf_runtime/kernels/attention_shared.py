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
from gguf_runtime.kernels.attention_tiles import KEY_ROW, STRIP, fma_all, load, wide
from quant.simd import Addr, F, macro

if TYPE_CHECKING:
    from quant.simd.words import Words

WIDTH = 6  # columns of a tile; items with more columns have a multiple of them
ROW = 64 * BLOCKS  # bytes of a row of the shared part
SHARED_BYTES = ROW * POSITIONS
UNROLL = 4  # rows of a step: fewer additions to addresses, which AVX2 has barely room for

Step = Callable[..., Any]


def tile_shared(columns: int) -> Step:
    """Helper: acc += weight * row for n rows and some strips of `columns` columns.

    Weights of column c: float32 from the address at table + 8 c on, `at` bytes further; acc is 0
    before if `fresh`. 16 lines at `near` are asked from memory meanwhile, spread evenly.
    """
    whole, one = tile_of(columns, True), tile_of(columns, False)

    @macro
    def tile(v: Words) -> int:
        return wide(v, columns)

    def shared(
        x: Addr, table: Addr, at: int, n: int, strips: int, to: Addr, size: int, fresh: bool,
        near: Addr,
    ) -> None:  # fmt: skip
        k = 0
        while k + tile() <= strips:
            whole(x + 64 * k, table, at, n, to + 64 * k, size, fresh, near)
            k += tile()
        while k < strips:
            one(x + 64 * k, table, at, n, to + 64 * k, size, fresh, near)
            k += 1

    return shared


def tile_of(columns: int, whole: bool) -> Step:
    """Helper: the same for as many strips as a tile takes, or for one."""

    def strips(v: Words) -> int:
        return wide(v, columns) if whole else 1

    @macro
    def fetch(v: Words, acc: Addr, size: int) -> tuple[F, ...]:
        places = ((c, k) for c in range(columns) for k in range(strips(v)))
        return tuple(v.ld_f(acc + c * size + 64 * k) for c, k in places)

    @macro
    def weights(v: Words, table: Addr, at: int) -> tuple[int, ...]:
        return tuple(v.ld_i64(table + 8 * c) + at for c in range(columns))

    def row(v: Words, acc: tuple[F, ...], x: Addr, w: tuple[int, ...], at: int) -> Any:
        rows = [v.ld_f(x + 64 * k) for k in range(strips(v))]
        return fma_all(v, acc, rows, [v.bc_f(a + at) for a in w])

    @macro
    def step(v: Words, acc: tuple[F, ...], x: Addr, w: tuple[int, ...], at: int) -> Any:
        return row(v, acc, x, w, at)

    @macro
    def zeros(v: Words) -> tuple[F, ...]:
        return (v.zero_f(),) * (columns * strips(v))

    @macro
    def steps(
        v: Words, acc: tuple[F, ...], x: Addr, w: tuple[int, ...], at: int, near: Addr
    ) -> Any:
        v.prefetch(near)
        for j in range(UNROLL):
            acc = row(v, acc, x + j * ROW, tuple(a + 4 * j for a in w), at)
        return acc

    @macro
    def keep(v: Words, acc: tuple[F, ...], to: Addr, size: int) -> None:
        n = strips(v)
        for i, x in enumerate(acc):
            v.st_f(to + i // n * size + 64 * (i % n), x)

    def tile(
        x: Addr, table: Addr, at: int, n: int, to: Addr, size: int, fresh: bool, near: Addr
    ) -> None:
        w = weights(table, at)
        acc = zeros()
        if not fresh:
            acc = fetch(to, size)
        many = n // UNROLL * UNROLL
        for i in range(0, 4 * many, 4 * UNROLL):
            acc = steps(acc, x, w, i, near + (i << 2))
            x += UNROLL * ROW
        for i in range(4 * many, 4 * n, 4):
            acc = step(acc, x, w, i)
            x += ROW
        keep(acc, to, size)

    return tile


def following(ahead: int, size: int) -> int:
    """Where a tile goes on with asking for `size` bytes of which another reached `ahead`."""
    ahead += 64 * (64 // UNROLL)
    return ahead if ahead < size else 0


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
    """Helper: scores of n columns, [column][64] float32 at out, for key blocks that a tile sees.

    `size` bytes at `coming` are wanted next.
    """
    unpack, six = unpack_keys(cache), tile_shared(WIDTH)

    def scores(
        keys: Addr, table: Addr, at: Addr, start: int, window: int, n: int, dim: int, out: Addr,
        shared: Addr, coming: Addr, size: int,
    ) -> None:  # fmt: skip
        ahead = 0
        for d in range(0, dim, 64):
            rows = min(dim - d, 64)
            unpack(keys, dim, d, rows, shared)
            for c in range(0, n, WIDTH):
                lo = low(at + 8 * c, start, window) // KEYS
                hi = (high(at + 8 * (c + WIDTH - 1), start) + KEYS - 1) // KEYS
                to = out + c * ROW + 64 * lo
                near = coming + ahead
                six(shared + 64 * lo, table + 8 * c, 4 * d, rows, hi - lo, to, ROW, d == 0, near)
                ahead = following(ahead, size)

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
    six, one = tile_shared(WIDTH), tile_shared(1)

    def values(
        x: Addr, scales: Addr, at: Addr, start: int, window: int, table: Addr, n: int, o: Addr,
        size: int, shared: Addr, coming: Addr, bytes_coming: int,
    ) -> None:  # fmt: skip
        strips, ahead = size >> 6, 0
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
                        near = coming + ahead
                        six(row, table + 8 * c, 4 * begin, end - begin, m, to, size, False, near)
                        ahead = following(ahead, bytes_coming)
                    elif begin < end:
                        for i in range(WIDTH):
                            f = max(low(a + 8 * i, start, window), begin)
                            e = min(high(a + 8 * i, start), end)
                            if f < e:
                                row = shared + f * ROW
                                w = table + 8 * (c + i)
                                one(row, w, 4 * f, e - f, m, to + i * size, size, False, coming)

    return values
