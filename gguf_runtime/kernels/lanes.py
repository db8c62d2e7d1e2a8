"""Sums over a vector in the contract's order: 16 virtual lanes, one fixed tree, chunks of 4096.

order  lane j takes elements j, j + 16, … of a chunk by fma or add, from 0; a last part of fewer than
       16 elements is filled with zeros; the lanes are folded i with i + 8, then + 4, + 2, + 1;
       the sums of chunks are added in ascending order in float32, from 0
The `_bits` functions are numpy; the others are helpers that kernels call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from quant.reference import fma32
from quant.simd import LANES, Addr, v

F32 = NDArray[np.float32]

CHUNK = 4096
# The width of a scalar in a kernel, to the type checker a plain float.
f32 = cast("Callable[[float], float]", np.float32)


def fold_bits(x: F32) -> F32:
    """(..., 16) -> (...): the fixed tree of `v.hsum`."""
    while x.shape[-1] > 1:
        n = x.shape[-1] // 2
        x = x[..., :n] + x[..., n:]
    return x[..., 0]


def square_sum_bits(x: F32) -> F32:
    """(..., n) -> (...): sum of squares."""
    total = np.zeros(x.shape[:-1], np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, x.shape[-1], CHUNK):
            part = strips(x[..., start : start + CHUNK])
            acc = np.zeros((*x.shape[:-1], LANES), np.float32)
            for i in range(part.shape[-2]):
                acc = fma32(part[..., i, :], part[..., i, :], acc)
            total = total + fold_bits(acc)
    return total


def sum_bits(x: F32) -> F32:
    """(..., n) -> (...): sum."""
    total = np.zeros(x.shape[:-1], np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, x.shape[-1], CHUNK):
            part = strips(x[..., start : start + CHUNK])
            acc = np.zeros((*x.shape[:-1], LANES), np.float32)
            for i in range(part.shape[-2]):
                acc = acc + part[..., i, :]
            total = total + fold_bits(acc)
    return total


def strips(x: F32) -> F32:
    """(..., n) -> (..., ceil(n / 16), 16), filled with zeros."""
    out = np.zeros((*x.shape[:-1], -(-x.shape[-1] // LANES) * LANES), np.float32)
    out[..., : x.shape[-1]] = x
    return out.reshape(*x.shape[:-1], -1, LANES)


def square_sum(a: Addr, n: int) -> float:
    """Sum of squares of n float32."""
    total = f32(0)
    i = 0
    while i < n:
        end = min(i + CHUNK, n)
        acc = v.zero_f()
        while i + LANES <= end:
            x = v.ld_f(a + 4 * i)
            acc = v.fma(x, x, acc)
            i += LANES
        if i < end:
            x = v.ld_f_tail(a + 4 * i, end - i)
            acc = v.fma(x, x, acc)
            i = end
        total = f32(total + v.hsum(acc))
    return total


def inverse_rms(a: Addr, n: int, eps: float) -> float:
    """1 / sqrt(mean of squares + eps) of n float32; IEEE division and square root."""
    mean = f32(square_sum(a, n) / f32(n))
    return f32(f32(1) / v.sqrt_f32(f32(mean + eps)))


def inverse_rms_bits(x: F32, eps: float) -> F32:
    """(..., n) -> (...): `inverse_rms` in numpy float32."""
    with np.errstate(all="ignore"):
        mean = square_sum_bits(x) / np.float32(x.shape[-1])
        out: F32 = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return out


def vector_sum(a: Addr, n: int) -> float:
    """Sum of n float32."""
    total = f32(0)
    i = 0
    while i < n:
        end = min(i + CHUNK, n)
        acc = v.zero_f()
        while i + LANES <= end:
            acc = v.add(acc, v.ld_f(a + 4 * i))
            i += LANES
        if i < end:
            acc = v.add(acc, v.ld_f_tail(a + 4 * i, end - i))
            i = end
        total = f32(total + v.hsum(acc))
    return total
