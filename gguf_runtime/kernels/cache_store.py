"""The store of one key or value into a cache page, and the check of its range: helpers of the rope kernel.

The layout is that of cache/pages.py; `pages.write` is the same in numpy. Sources are float32 in a
buffer that is scratch: a key is narrowed where it lies before its elements are scattered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf_runtime.cache.pages import GROUP, KEYS, KINDS, LARGEST_F16, POSITIONS
from gguf_runtime.kernels.lanes import f32
from quant.simd import LANES, Addr, F, macro, v

if TYPE_CHECKING:
    from quant.simd.words import Words

# Magnitudes from here on do not survive the cache type.
LIMITS = {"f16": LARGEST_F16, "q8_0": LARGEST_F16 * 127, "f32": float("inf")}


# ---- range -------------------------------------------------------------------------------------


@macro
def outside(v: Words, bad: F, x: F, limit: float) -> F:
    """1 in the lanes whose magnitude is not below the limit (NaN is not)."""
    return v.select(v.lt(v.abs(x), v.splat_f(limit)), bad, v.splat_f(1.0))


def all_below(a: Addr, n: int, limit: float) -> bool:
    """Every one of n values has a magnitude below the limit."""
    bad = v.zero_f()
    for i in range(0, n - LANES + 1, LANES):
        bad = outside(bad, v.ld_f(a + 4 * i), limit)
    left = n % LANES
    if left > 0:
        bad = outside(bad, v.ld_f_tail(a + 4 * (n - left), left), limit)
    return v.hmax(bad) == f32(0)


# ---- store -------------------------------------------------------------------------------------


def narrow(a: Addr, n: int) -> None:
    """N float32 -> n halves at the same place; the address of a strip is never ahead of its source."""
    for i in range(0, n - LANES + 1, LANES):
        v.st_f16(a + 2 * i, v.ld_f(a + 4 * i))
    left = n % LANES
    if left > 0:
        i = n - left
        v.st_f16(a + 2 * i, v.ld_f_tail(a + 4 * i, left))


@macro
def quantize_in_place(v: Words, a: Addr) -> int:
    """32 float32 -> 32 codes at the same place; returns the bits of d."""
    x0, x1 = v.ld_f(a), v.ld_f(a + 64)
    amax = v.hmax(v.max(v.abs(x0), v.abs(x1)))
    v.st_f16(a, v.div(v.splat_f(amax), v.splat_f(127.0)))
    bits = v.ld_u16(a)
    d = v.ld_f16(a)
    some = v.lt(v.zero_f(), d)
    top, low = v.splat_f(127.0), v.splat_f(-127.0)
    for k, x in enumerate((x0, x1)):
        q = v.min(v.max(v.div(x, d), low), top)
        v.st_w_s8(a + 16 * k, v.rint_w(v.select(some, q, v.zero_f())))
    return bits


def store_key_f16(k: Addr, page: Addr, slot: int, dim: int) -> None:
    """A key of `dim` values at k -> its lane of the strips."""
    narrow(k, dim)
    to = page + (slot >> 4) * (dim * KEYS * 2) + (slot & 15) * 2
    for i in range(dim):
        v.st_u16(to + i * KEYS * 2, v.ld_u16(k + 2 * i))


def store_key_f32(k: Addr, page: Addr, slot: int, dim: int) -> None:
    """A key of `dim` values at k -> its lane of the strips."""
    to = page + (slot >> 4) * (dim * KEYS * 4) + (slot & 15) * 4
    for i in range(dim):
        v.st_i32(to + i * KEYS * 4, v.ld_i32(k + 4 * i))


def store_key_q8_0(k: Addr, page: Addr, slot: int, dim: int) -> None:
    """A key of `dim` values at k -> its lane of scales and codes."""
    size = KEYS * (GROUP + 2)
    to = page + (slot >> 4) * ((dim >> 5) * size)
    lane = slot & 15
    for g in range(dim >> 5):
        v.st_u16(to + 2 * lane, quantize_in_place(k))
        for i in range(GROUP):
            v.st_u8(to + 2 * KEYS + i * KEYS + lane, v.ld_u8(k + i))
        k += 4 * GROUP
        to += size


def store_value_f16(x: Addr, values: Addr, slot: int, dim: int) -> None:
    """A value of `dim` elements at x -> its row, padded with zeros to 16."""
    to = values + slot * (((dim + 15) >> 4) * 32)
    for i in range(0, dim - LANES + 1, LANES):
        v.st_f16(to + 2 * i, v.ld_f(x + 4 * i))
    left = dim % LANES
    if left > 0:
        i = dim - left
        v.st_f16(to + 2 * i, v.ld_f_tail(x + 4 * i, left))


def store_value_f32(x: Addr, values: Addr, slot: int, dim: int) -> None:
    """A value of `dim` elements at x -> its row, padded with zeros to 16."""
    to = values + slot * (((dim + 15) >> 4) * 64)
    for i in range(0, dim - LANES + 1, LANES):
        v.st_f(to + 4 * i, v.ld_f(x + 4 * i))
    left = dim % LANES
    if left > 0:
        i = dim - left
        v.st_f(to + 4 * i, v.ld_f_tail(x + 4 * i, left))


def store_value_q8_0(x: Addr, values: Addr, slot: int, dim: int) -> None:
    """A value of `dim` elements at x -> its scales and its row of codes."""
    codes = values + (dim >> 5) * (POSITIONS * 2) + slot * dim
    for g in range(dim >> 5):
        v.st_u16(values + (g * POSITIONS + slot) * 2, quantize_in_place(x))
        for i in range(0, GROUP, 8):
            v.st_i64(codes + i, v.ld_i64(x + i))
        x += 4 * GROUP
        codes += GROUP


STORES = {
    "f16": (store_key_f16, store_value_f16),
    "f32": (store_key_f32, store_value_f32),
    "q8_0": (store_key_q8_0, store_value_q8_0),
}
assert set(STORES) == set(KINDS)
