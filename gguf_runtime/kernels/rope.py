"""Rotary embedding of q and k, optional RMS norm of every head before it, and the store into cache pages.

args   ARGS below, one 8-byte slot each: addresses, strides in bytes, counts; `eps`, `scale` float64
       q f32 [T][n_head][key_dim] changed in place · k f32 [T][n_head_kv][key_dim] and
       v f32 [T][n_head_kv][value_dim] read, then used as scratch: undefined afterwards
       q_norm, k_norm f32 [key_dim], 0: none · cos, sin f32 [position][n_rot / 2], magnitude included
       pos i32 [T] · seq i32 [T]: sequence of a token · tables i64 [sequence]: addresses of
       i64 [position / 64]: addresses of pages · layer_offset, head_bytes, key_bytes: see cache/pages.py
       flag i64: set to 1 if a key or value is NaN or beyond the range of the cache type
       key_dim, value_dim >= 8; n_rot even, <= key_dim; nothing aliases
task   one token
does   per head of q and k: x = x / sqrt(mean(x * x) + eps) * norm; per pair (2i, 2i + 1 "norm";
       i, i + n_rot / 2 "neox"): (a, b) = (a cos - b sin, a sin + b cos); q = q * scale
order  norm as norm.py; every product and sum of a pair rounded; scale last, rounded once
exact  equals `bits`, the page equals `pages.write`; within RTOL * |head| of `reference` (float64)
cost   a few passes in cache; keys are scattered, one element at a time, into strips of 16 keys
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pages import GROUP, KEYS, KINDS, LARGEST_F16, POSITIONS
from gguf_runtime.kernels.lanes import f32, inverse_rms, inverse_rms_bits
from gguf_runtime.kernels.norm import write_normed
from quant.jit import kernel
from quant.simd import LANES, Addr, F, macro, v

if TYPE_CHECKING:
    from gguf_runtime.kernels.checks import Run
    from quant.compile import KernelFn
    from quant.simd.words import Words

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

ARGS = (
    "q", "q_stride", "k", "k_stride", "v", "v_stride", "n_head", "n_head_kv", "key_dim", "value_dim",
    "n_rot", "cos", "sin", "pos", "seq", "tables", "layer_offset", "head_bytes", "key_bytes",
    "q_norm", "k_norm", "eps", "scale", "flag",
)  # fmt: skip
(
    Q, Q_STRIDE, K, K_STRIDE, V, V_STRIDE, N_HEAD, N_HEAD_KV, KEY_DIM, VALUE_DIM,
    N_ROT, COS, SIN, POS, SEQ, TABLES, LAYER_OFFSET, HEAD_BYTES, KEY_BYTES,
    Q_NORM, K_NORM, EPS, SCALE, FLAG,
) = range(0, 8 * len(ARGS), 8)  # fmt: skip

RTOL = 1e-6
# Magnitudes from here on do not survive the cache type.
LIMITS = {"f16": LARGEST_F16, "q8_0": LARGEST_F16 * 127, "f32": float("inf")}


def pairs(kind: str, n_rot: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the first and of the second component of every pair."""
    half = np.arange(n_rot // 2)
    return (2 * half, 2 * half + 1) if kind == "norm" else (half, half + n_rot // 2)


def reference(
    kind: str,
    x: F64,
    cos: F64,
    sin: F64,
    norm: F64 | None = None,
    eps: float = 0.0,
    scale: float = 1.0,
) -> F64:
    """(T, heads, dim) with cos, sin (T, n_rot / 2) -> the same shape, float64."""
    y = x.astype(np.float64)
    if norm is not None:
        y = y / np.sqrt(np.mean(y * y, -1, keepdims=True) + eps) * norm
    i, j = pairs(kind, 2 * cos.shape[-1])
    a, b, c, s = y[..., i], y[..., j], cos[:, None], sin[:, None]
    y[..., i], y[..., j] = a * c - b * s, a * s + b * c
    return y * scale


def bits(
    kind: str,
    x: F32,
    cos: F32,
    sin: F32,
    norm: F32 | None = None,
    eps: float = 0.0,
    scale: float = 1.0,
) -> F32:
    """(T, heads, dim) float32 with cos, sin (T, n_rot / 2) -> heads as the kernel leaves them."""
    y = x.astype(np.float32)
    with np.errstate(all="ignore"):
        if norm is not None:
            y = (y * inverse_rms_bits(y, eps)[..., None]) * norm
        i, j = pairs(kind, 2 * cos.shape[-1])
        a, b, c, s = y[..., i], y[..., j], cos[:, None], sin[:, None]
        y[..., i], y[..., j] = a * c - b * s, a * s + b * c
        out: F32 = y * np.float32(scale)
    return out


# ---- rotation ----------------------------------------------------------------------------------


@macro
def turn(v: Words, a: F, b: F, c: F, s: F) -> tuple[F, F]:
    """Strips of first and second components -> turned."""
    return v.sub(v.mul(a, c), v.mul(b, s)), v.add(v.mul(a, s), v.mul(b, c))


@macro
def turn_pairs(v: Words, x: F, c: F, s: F) -> F:
    """8 neighbouring pairs, with 8 cosines and sines in the first lanes -> turned."""
    twice = [k // 2 for k in range(LANES)]
    other = v.split(F, v.shuffle(v.join(x), v.join(x), [k ^ 1 for k in range(LANES)]))
    c, s = (v.split(F, v.shuffle(v.join(t), v.join(t), twice)) for t in (c, s))
    t = v.mul(other, s)
    even = v.lt_w(v.shl_w(v.iota_w(), 31), v.zero_w())
    return v.add(v.mul(x, c), v.select(even, t, v.neg(t)))


def rotate_neox(a: Addr, cos: Addr, sin: Addr, n_rot: int) -> None:
    """Turn the pairs (i, i + n_rot / 2) of a head."""
    half = n_rot >> 1
    b = a + 4 * half
    for i in range(0, half - LANES + 1, LANES):
        o = 4 * i
        x, y = turn(v.ld_f(a + o), v.ld_f(b + o), v.ld_f(cos + o), v.ld_f(sin + o))
        v.st_f(a + o, x)
        v.st_f(b + o, y)
    left = half % LANES
    if left > 0:
        o = 4 * (half - left)
        c, s = v.ld_f_tail(cos + o, left), v.ld_f_tail(sin + o, left)
        x, y = turn(v.ld_f_tail(a + o, left), v.ld_f_tail(b + o, left), c, s)
        v.st_f_tail(a + o, x, left)
        v.st_f_tail(b + o, y, left)


def rotate_norm(a: Addr, cos: Addr, sin: Addr, n_rot: int) -> None:
    """Turn the pairs (2i, 2i + 1) of a head."""
    for i in range(0, n_rot - LANES + 1, LANES):
        o = 2 * i
        c, s = v.ld_f_tail(cos + o, 8), v.ld_f_tail(sin + o, 8)
        v.st_f(a + 4 * i, turn_pairs(v.ld_f(a + 4 * i), c, s))
    left = n_rot % LANES
    if left > 0:
        i = n_rot - left
        c, s = v.ld_f_tail(cos + 2 * i, left >> 1), v.ld_f_tail(sin + 2 * i, left >> 1)
        v.st_f_tail(a + 4 * i, turn_pairs(v.ld_f_tail(a + 4 * i, left), c, s), left)


def multiply(a: Addr, n: int, factor: float) -> None:
    """N values times a factor, in place."""
    for i in range(0, n - LANES + 1, LANES):
        v.st_f(a + 4 * i, v.mul(v.ld_f(a + 4 * i), v.splat_f(factor)))
    left = n % LANES
    if left > 0:
        o = a + 4 * (n - left)
        v.st_f_tail(o, v.mul(v.ld_f_tail(o, left), v.splat_f(factor)), left)


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


@kernel(
    uses=["gguf_runtime.kernels.lanes", "gguf_runtime.kernels.norm", "gguf_runtime.cache.pages"],
    check="check",
)
def rope_store(kind: str, cache: str) -> KernelFn:
    """Kernel for pairs "norm" or "neox" and cache type "f16", "f32" or "q8_0"."""
    rotate = {"norm": rotate_norm, "neox": rotate_neox}[kind]
    store_key, store_value = STORES[cache]
    largest = LIMITS[cache]

    def head(a: Addr, norm: Addr, dim: int, eps: float, cos: Addr, sin: Addr, n_rot: int) -> None:
        if norm != 0:
            write_normed(a, norm, a, dim, inverse_rms(a, dim, eps))
        rotate(a, cos, sin, n_rot)

    def rope_store(args: int, task: int, thread: int) -> None:
        dim, value_dim = v.ld_i64(args + KEY_DIM), v.ld_i64(args + VALUE_DIM)
        n_rot, eps = v.ld_i64(args + N_ROT), f32(v.ld_f64(args + EPS))
        position = v.ld_i32(v.ld_i64(args + POS) + 4 * task)
        cos = v.ld_i64(args + COS) + position * n_rot * 2
        sin = v.ld_i64(args + SIN) + position * n_rot * 2
        q = v.ld_i64(args + Q) + task * v.ld_i64(args + Q_STRIDE)
        norm, scale = v.ld_i64(args + Q_NORM), f32(v.ld_f64(args + SCALE))
        for h in range(v.ld_i64(args + N_HEAD)):
            head(q, norm, dim, eps, cos, sin, n_rot)
            multiply(q, dim, scale)
            q += 4 * dim
        k = v.ld_i64(args + K) + task * v.ld_i64(args + K_STRIDE)
        x = v.ld_i64(args + V) + task * v.ld_i64(args + V_STRIDE)
        norm, heads = v.ld_i64(args + K_NORM), v.ld_i64(args + N_HEAD_KV)
        table = v.ld_i64(v.ld_i64(args + TABLES) + 8 * v.ld_i32(v.ld_i64(args + SEQ) + 4 * task))
        page = v.ld_i64(table + 8 * (position >> 6)) + v.ld_i64(args + LAYER_OFFSET)
        slot = position & 63
        step, values = v.ld_i64(args + HEAD_BYTES), v.ld_i64(args + KEY_BYTES)
        limit = f32(largest)
        fits = all_below(x, heads * value_dim, limit)
        for h in range(heads):
            head(k, norm, dim, eps, cos, sin, n_rot)
            fits = all_below(k, dim, limit) and fits
            store_key(k, page, slot, dim)
            store_value(x, page + values, slot, value_dim)
            k += 4 * dim
            x += 4 * value_dim
            page += step
        if not fits:
            v.st_i64(v.ld_i64(args + FLAG), 1)

    return rope_store


def check(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import checks

    return checks.check_rope(run, *params)
