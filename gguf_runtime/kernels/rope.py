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

from gguf_runtime.kernels.cache_store import LIMITS, STORES, all_below
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


# ---- kernel ------------------------------------------------------------------------------------


@kernel(check="check")
def rope_store(kind: str, cache: str) -> KernelFn:
    """Kernel for pairs "norm" or "neox" and cache type "f16", "f32" or "q8_0"."""
    rotate = {"norm": rotate_norm, "neox": rotate_neox}[kind]
    store_key, store_value = STORES[cache]
    limit = LIMITS[cache]

    def rope_store(args: int, task: int, thread: int) -> None:
        dim, value_dim = v.ld_i64(args + KEY_DIM), v.ld_i64(args + VALUE_DIM)
        n_rot, eps = v.ld_i64(args + N_ROT), f32(v.ld_f64(args + EPS))
        position = v.ld_i32(v.ld_i64(args + POS) + 4 * task)
        cos = v.ld_i64(args + COS) + position * n_rot * 2
        sin = v.ld_i64(args + SIN) + position * n_rot * 2
        scale, largest = f32(v.ld_f64(args + SCALE)), f32(limit)
        table = v.ld_i64(v.ld_i64(args + TABLES) + 8 * v.ld_i32(v.ld_i64(args + SEQ) + 4 * task))
        page = v.ld_i64(table + 8 * (position >> 6)) + v.ld_i64(args + LAYER_OFFSET)
        queries, keys = v.ld_i64(args + N_HEAD), v.ld_i64(args + N_HEAD_KV)
        a = v.ld_i64(args + Q) + task * v.ld_i64(args + Q_STRIDE)
        x = v.ld_i64(args + V) + task * v.ld_i64(args + V_STRIDE)
        norm = v.ld_i64(args + Q_NORM)
        fits = all_below(x, keys * value_dim, largest)
        for h in range(queries + keys):
            if h == queries:
                a = v.ld_i64(args + K) + task * v.ld_i64(args + K_STRIDE)
                norm = v.ld_i64(args + K_NORM)
            if norm != 0:
                write_normed(a, norm, a, dim, inverse_rms(a, dim, eps))
            rotate(a, cos, sin, n_rot)
            if h < queries:
                multiply(a, dim, scale)
            else:
                fits = all_below(a, dim, largest) and fits
                store_key(a, page, position & 63, dim)
                store_value(x, page + v.ld_i64(args + KEY_BYTES), position & 63, value_dim)
                x += 4 * value_dim
                page += v.ld_i64(args + HEAD_BYTES)
            a += 4 * dim
        if not fits:
            v.st_i64(v.ld_i64(args + FLAG), 1)

    return rope_store


def check(run: Run, isa: str, *params: str) -> str:
    """Small cases against `bits`."""
    from gguf_runtime.kernels import checks

    return checks.check_rope(run, *params)
