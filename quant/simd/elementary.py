"""exp, sigmoid, tanh, gelu and silu over strips, as polynomials over words: one result everywhere.

Each function is written twice: over words (traced into kernels) and, with `_bits`, in numpy float32
in the same order of operations. Only fma, add, sub, mul, div, select and bit words are used.

exp      1.1 ulp, one step of a subnormal result; exp(0) = 1, exp(-inf) = 0, exp(inf) = inf
sigmoid  2.5 ulp for x >= -87, 2^-125 absolute below
tanh     1.5 ulp, odd, tanh(inf) = 1
gelu     the tanh form, 2e-7 |x|; gelu(-inf) is NaN
silu     x * sigmoid(x), 2.5 ulp for x >= -87; silu(-inf) is NaN
Largest errors against float64, measured over the whole range.
NaN gives NaN. Checked: tests/property/quant/test_simd_elementary.py.
Source of the coefficients: Cephes (S. L. Moshier), expf and tanhf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quant.reference import fma32
from quant.simd.values import F, W

if TYPE_CHECKING:
    from quant.simd.words import Words

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

LOWEST, HIGHEST = -104.0, 89.0  # exp is 0 below and inf above
LOG2E = 1.4426950408889634
MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits
MAGIC_BITS = 0x4B400000
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723e-06  # the first times |n| < 256 is exact
EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
TANH_SMALL = 0.625  # above it tanh comes from exp
# gelu(x) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
GELU_LINEAR = -1.5957691216057308
GELU_CUBIC = -0.07135481282636585


# ---- over words --------------------------------------------------------------------------------


def exp(v: Words, x: F) -> F:
    """e^x, rounded at most 1 ulp away; subnormal results included."""
    low, high = v.splat_f(LOWEST), v.splat_f(HIGHEST)
    x = v.select(v.lt(x, low), low, x)  # comparisons with NaN are false: NaN stays
    x = v.select(v.lt(high, x), high, x)
    t = v.fma(x, v.splat_f(LOG2E), v.splat_f(MAGIC))
    n = v.sub(t, v.splat_f(MAGIC))
    r = v.fma(n, v.splat_f(-LN2_HIGH), x)
    r = v.fma(n, v.splat_f(-LN2_LOW), r)
    p = v.splat_f(EXP[0])
    for c in EXP[1:]:
        p = v.fma(p, r, v.splat_f(c))
    p = v.add(v.fma(v.mul(r, r), p, r), v.splat_f(1.0))
    # Two factors: one power of two would overflow at the top and could not reach subnormals.
    w = v.sub_w(v.w_of_f(t), v.splat_w(MAGIC_BITS))
    half = v.ashr_w(w, 1)
    return v.mul(v.mul(p, _power(v, half)), _power(v, v.sub_w(w, half)))


def _power(v: Words, n: W) -> F:
    """2^n for -126 <= n <= 127."""
    return v.f_of_w(v.shl_w(v.add_w(n, v.splat_w(127)), 23))


def sigmoid(v: Words, x: F) -> F:
    """1 / (1 + e^-x)."""
    one = v.splat_f(1.0)
    return v.div(one, v.add(one, exp(v, v.neg(x))))


def tanh(v: Words, x: F) -> F:
    """Polynomial below 0.625, 1 - 2 / (e^2x + 1) above; the sign is put back by its bit."""
    a, one, two = v.abs(x), v.splat_f(1.0), v.splat_f(2.0)
    big = v.sub(one, v.div(two, v.add(exp(v, v.add(a, a)), one)))
    z = v.mul(a, a)
    p = v.splat_f(TANH[0])
    for c in TANH[1:]:
        p = v.fma(p, z, v.splat_f(c))
    small = v.fma(v.mul(p, z), a, a)
    y = v.select(v.lt(a, v.splat_f(TANH_SMALL)), small, big)
    sign = v.and_w(v.w_of_f(x), v.splat_w(-(2**31)))
    return v.f_of_w(v.or_w(v.w_of_f(y), sign))


def gelu(v: Words, x: F) -> F:
    """x / (1 + e^-2u), which is 0.5 x (1 + tanh u) without its cancellation."""
    slope = v.fma(v.mul(x, x), v.splat_f(GELU_CUBIC), v.splat_f(GELU_LINEAR))
    return v.div(x, v.add(v.splat_f(1.0), exp(v, v.mul(x, slope))))


def silu(v: Words, x: F) -> F:
    """x / (1 + e^-x)."""
    return v.div(x, v.add(v.splat_f(1.0), exp(v, v.neg(x))))


# ---- the same in numpy -------------------------------------------------------------------------


def _f(x: float) -> F32:
    return np.asarray(x, np.float32)


def exp_bits(x: F32) -> F32:
    """`exp` in numpy float32, the same bits."""
    with np.errstate(all="ignore"):
        x = np.where(x < _f(LOWEST), _f(LOWEST), np.asarray(x, np.float32))
        x = np.where(_f(HIGHEST) < x, _f(HIGHEST), x)
        t = fma32(x, _f(LOG2E), _f(MAGIC))
        n = t - _f(MAGIC)
        r = fma32(n, _f(-LN2_HIGH), x)
        r = fma32(n, _f(-LN2_LOW), r)
        p = np.full_like(r, EXP[0])
        for c in EXP[1:]:
            p = fma32(p, r, _f(c))
        p = fma32(r * r, p, r) + _f(1.0)
        w: I32 = t.view(np.int32) - np.int32(MAGIC_BITS)
        half: I32 = w >> 1
        out: F32 = p * _power_bits(half) * _power_bits(w - half)
    return out


def _power_bits(n: I32) -> F32:
    out: F32 = ((n + np.int32(127)) << 23).view(np.float32)
    return out


def sigmoid_bits(x: F32) -> F32:
    """`sigmoid` in numpy float32, the same bits."""
    with np.errstate(all="ignore"):
        out: F32 = _f(1.0) / (_f(1.0) + exp_bits(-np.asarray(x, np.float32)))
    return out


def tanh_bits(x: F32) -> F32:
    """`tanh` in numpy float32, the same bits."""
    with np.errstate(all="ignore"):
        a: F32 = np.abs(np.asarray(x, np.float32))
        big = _f(1.0) - _f(2.0) / (exp_bits(a + a) + _f(1.0))
        z = a * a
        p = np.full_like(a, TANH[0])
        for c in TANH[1:]:
            p = fma32(p, z, _f(c))
        y: F32 = np.where(a < _f(TANH_SMALL), fma32(p * z, a, a), big)
        out: F32 = np.copysign(y, x)
    return out


def gelu_bits(x: F32) -> F32:
    """`gelu` in numpy float32, the same bits."""
    with np.errstate(all="ignore"):
        x = np.asarray(x, np.float32)
        slope = fma32(x * x, _f(GELU_CUBIC), _f(GELU_LINEAR))
        out: F32 = x / (_f(1.0) + exp_bits(x * slope))
    return out


def silu_bits(x: F32) -> F32:
    """`silu` in numpy float32, the same bits."""
    with np.errstate(all="ignore"):
        x = np.asarray(x, np.float32)
        out: F32 = x / (_f(1.0) + exp_bits(-x))
    return out
