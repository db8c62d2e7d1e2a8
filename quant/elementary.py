"""exp2, log2, pow, sin and cos in float64, the same bits on every machine.

Constants that a model is loaded with (rope frequencies, yarn ramps) must not depend on the system's
math library, nor on numpy's vector code, so these functions use only + - * / and exact steps
(rint, frexp, ldexp).
Reductions after Cody and Waite; the products that would lose bits are kept as sums of two floats
(Dekker 1971).
Errors: at most 2 ulp, measured against 60 digits in tests/property/quant/test_elementary.py.
Limits: sin and cos take |x| up to 2^20; log2 and pow take positive normal numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quant.errors import QuantError

F64 = NDArray[np.float64]
Pair = tuple[F64, F64]  # an unevaluated sum, |second| <= ulp(first) / 2

LN2 = 0.6931471805599453
_LN2_LOW = 2.3190468138462996e-17
_TWO_OVER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_SQRT_HALF = 0.7071067811865476
_TWO_OVER_PI = 0.6366197723675814
# Half of pi in pieces of 33, 33 and 53 bits: a count below 2^20 times one of 33 bits is exact.
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_MAX_ANGLE = float(1 << 20)
_SPLIT = 134217729.0  # 2^27 + 1

_ATANH = [1 / n for n in range(27, 4, -2)]  # 1/27 … 1/5
_INVERSE_FACTORIALS = [1.0]
for _n in range(1, 20):
    _INVERSE_FACTORIALS.append(_INVERSE_FACTORIALS[-1] / _n)
_EXP = _INVERSE_FACTORIALS[15:1:-1]  # 1/15! … 1/2!
_SIN = [-_INVERSE_FACTORIALS[n] if n % 4 == 3 else _INVERSE_FACTORIALS[n] for n in range(19, 2, -2)]
_COS = [-_INVERSE_FACTORIALS[n] if n % 4 == 2 else _INVERSE_FACTORIALS[n] for n in range(18, 3, -2)]


def exp2(x: ArrayLike) -> F64:
    """2 to the power x."""
    a = np.asarray(x, np.float64)
    return _exp2((a, np.zeros_like(a)))


def log2(x: ArrayLike) -> F64:
    """Logarithm to the base 2 of positive normal numbers."""
    high, low = _log2(_positive(x))
    return high + low


def pow(x: ArrayLike, y: ArrayLike) -> F64:
    """x to the power y, x positive."""
    high, low = _log2(_positive(x))
    return _exp2(_times((high, low), np.asarray(y, np.float64)))


def sin(x: ArrayLike) -> F64:
    """Sine of x radians, |x| <= 2^20."""
    return sin_cos(x)[0]


def cos(x: ArrayLike) -> F64:
    """Cosine of x radians, |x| <= 2^20."""
    return sin_cos(x)[1]


def sin_cos(x: ArrayLike) -> tuple[F64, F64]:
    """Sine and cosine of x radians, |x| <= 2^20; both for the price of one reduction."""
    a = np.asarray(x, np.float64)
    if not bool(np.all(np.abs(a) <= _MAX_ANGLE)):
        raise QuantError("sin_cos takes angles up to 2^20 radians")
    quarter = np.rint(a * _TWO_OVER_PI)
    r, rest = _two_sum(a - quarter * _HALF_PI[0], -quarter * _HALF_PI[1])
    r, rest = _two_sum(r, rest - quarter * _HALF_PI[2])
    z = r * r
    s = r + (rest + r * z * _polynomial(_SIN, z))
    half = 0.5 * z
    w = 1.0 - half
    c = w + (((1.0 - w) - half) + (z * z * _polynomial(_COS, z) - r * rest))
    turn = quarter.astype(np.int64) & 3
    odd = (turn & 1) == 1
    sine, cosine = np.where(odd, c, s), np.where(odd, s, c)
    return np.where(turn >= 2, -sine, sine), np.where((turn == 1) | (turn == 2), -cosine, cosine)


def _positive(x: ArrayLike) -> F64:
    a = np.asarray(x, np.float64)
    if not bool(np.all((a >= np.finfo(np.float64).tiny) & (a < np.inf))):
        raise QuantError("log2 and pow take positive finite numbers")
    return a


def _log2(x: F64) -> Pair:
    mantissa, exponent = np.frexp(x)
    small = mantissa < _SQRT_HALF
    f = np.where(small, mantissa * 2.0, mantissa) - 1.0
    e = (exponent - small).astype(np.float64)
    # log2(1 + f) = 2 / ln 2 * atanh(s), s = f / (2 + f), |s| <= 0.1716
    d, d_low = _two_sum(np.full_like(f, 2.0), f)
    s = f / d
    p, p_low = _two_product(s, d)
    s_low = (((f - p) - p_low) - s * d_low) / d
    z, z_low = _two_product(s, s)
    cube = _product((s, s_low), (z, z_low + 2.0 * s * s_low))
    third = _product(cube, _constant(_THIRD, s))
    tail = cube[0] * z * _polynomial(_ATANH, z)
    high, low = _two_sum(s, third[0])
    log = _product((high, low + (s_low + third[1] + tail)), _constant(_TWO_OVER_LN2, s))
    high, low = _two_sum(e, log[0])
    return _two_sum(high, low + log[1])


def _exp2(x: Pair) -> F64:
    high = np.clip(x[0], -1100.0, 1100.0)
    n = np.rint(high)
    t, t_low = _two_product(high - n, np.full_like(high, LN2))
    t_low = t_low + ((high - n) * _LN2_LOW + x[1] * LN2)
    one, rest = _two_sum(np.ones_like(t), t)
    tail = t * t * _polynomial(_EXP, t)
    value = one + (rest + (t_low * (1.0 + t + tail) + tail))
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(value, n.astype(np.int32))


def _polynomial(coefficients: list[float], x: F64) -> F64:
    """Horner's rule, highest power first."""
    value = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * x + c
    return value


def _constant(pair: tuple[float, float], like: F64) -> Pair:
    return np.full_like(like, pair[0]), np.full_like(like, pair[1])


def _two_sum(a: F64, b: F64) -> Pair:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: F64, b: F64) -> Pair:
    p = a * b
    c, d = a * _SPLIT, b * _SPLIT
    a_high, b_high = c - (c - a), d - (d - b)
    a_low, b_low = a - a_high, b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _product(a: Pair, b: Pair) -> Pair:
    p, low = _two_product(a[0], b[0])
    return _two_sum(p, low + (a[0] * b[1] + a[1] * b[0]))


def _times(a: Pair, b: F64) -> Pair:
    p, low = _two_product(a[0], b)
    return _two_sum(p, low + a[1] * b)
