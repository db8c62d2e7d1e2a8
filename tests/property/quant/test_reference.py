"""The contract's reference: fma, activations and products against independent arithmetic."""

import ctypes
import ctypes.util
from fractions import Fraction

import numpy as np
import pytest

from quant import QuantError
from quant.reference import (
    LIMITS,
    dot_bits,
    fma32,
    matmul_bits,
    matmul_exact,
    quantize_activations,
)
from quant.types import TYPES

every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
both_precisions = pytest.mark.parametrize("precision", LIMITS)
# Rounding of the sums themselves: one fma (or two) per group, K values at most.
SUM_RTOL = 1e-5


def random_bits(rng, n):
    x = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(0), x)


def fma_cases():
    """Any bits, near cancellation, exact halves, subnormal results, overflow."""
    rng = np.random.default_rng(1)
    n = 20_000
    a, b, c = (random_bits(rng, n) for _ in range(3))
    with np.errstate(over="ignore", invalid="ignore"):
        near = -(a * b) * (1 + rng.integers(-2, 3, n) * np.float32(2.0**-24))
        few = (1 + rng.integers(0, 8, (3, n)) * 2.0 ** -rng.integers(1, 25, (3, n))).astype("f4")
        tiny = few * np.exp2(rng.integers(-76, -72, (3, n))).astype("f4")
        tiny[2] = rng.integers(-5, 6, n) * np.float32(2.0**-149)
        halves = few.copy()
        halves[2] *= np.exp2(rng.integers(20, 28, n)).astype("f4") * rng.choice([-1, 1], n)
    edge = np.array(
        [0, -0.0, 1, -1, np.inf, -np.inf, 3.4028235e38, 1e-45, 1.1754944e-38], np.float32
    )
    grid = np.stack(np.meshgrid(edge, edge, edge)).reshape(3, -1)
    parts = [(a, b, c), (a, b, near.astype("f4")), few, tiny, halves, grid]
    return [np.concatenate([np.asarray(p[i], np.float32) for p in parts]) for i in range(3)]


def libm_fmaf():
    for name in (None, ctypes.util.find_library("m")):
        try:
            f = ctypes.CDLL(name).fmaf
        except (OSError, AttributeError, TypeError):
            continue
        f.restype, f.argtypes = ctypes.c_float, [ctypes.c_float] * 3
        return f
    return None


def test_fma32_equals_the_fma_of_libm():
    fmaf = libm_fmaf()
    if fmaf is None:
        pytest.skip("no fmaf in this system's C library")
    a, b, c = fma_cases()

    got = fma32(a, b, c)

    expected = np.array(
        [fmaf(*v) for v in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)], np.float32
    )
    same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
    assert same.all()


def test_fma32_rounds_the_exact_sum_once():
    cases = [v for v in zip(*fma_cases(), strict=True) if np.isfinite(v).all()][::40]

    for a, b, c in cases:
        got = fma32(a, b, c)[()]
        if not np.isfinite(got):
            continue
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        miss = abs(Fraction(float(got)) - exact)
        for side in (np.float32(-np.inf), np.float32(np.inf)):
            with np.errstate(over="ignore", under="ignore"):
                other = np.nextafter(got, side)
            if not np.isfinite(other):
                continue
            further = abs(Fraction(float(other)) - exact)
            even = int(got.view(np.uint32)) % 2 == 0
            assert miss < further or (miss == further and even)


@both_precisions
def test_activations_round_to_the_nearest_step(precision):
    rng = np.random.default_rng(2)
    limit = LIMITS[precision]
    x = (rng.standard_normal((5, 256)) * np.exp2(rng.integers(-60, 60, (5, 1)))).astype(np.float32)

    a = quantize_activations(x, limit)

    step = a.dx.astype(np.float64).repeat(32, 1)
    assert np.abs(a.codes).max() == limit
    assert np.all(np.abs(a.codes * step - x) <= step * (0.5 + limit * 2.0**-23))
    sums = a.codes.reshape(5, 8, 32).sum(-1)
    assert np.array_equal(a.xs, sums.astype(np.float32) * a.dx)
    halves = a.codes.reshape(5, 16, 16).sum(-1)
    assert np.array_equal(a.xs16, halves.astype(np.float32) * a.dx.repeat(2, 1))


@both_precisions
def test_activations_stay_within_the_limit_where_scales_vanish(precision):
    rng = np.random.default_rng(3)
    limit = LIMITS[precision]
    exponents = np.arange(-149, -100)
    x = rng.uniform(-1, 1, (len(exponents), 32)) * np.exp2(exponents)[:, None]

    a = quantize_activations(x.astype(np.float32), limit)

    assert np.abs(a.codes).max() <= limit
    assert np.all((a.dx == 0) | (a.dx >= 2.0**-126))
    assert (a.codes[a.dx[:, 0] == 0] == 0).all()
    assert {0} < set(a.dx[:, 0].tolist())


def test_activation_ties_go_to_the_even_code():
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = 127, 0.5, 1.5, 2.5, -0.5, -1.5

    assert quantize_activations(x, 127).codes[0, :6].tolist() == [127, 0, 2, 2, 0, -2]


def test_activations_with_nan_or_infinity_show_in_their_scale_and_sums():
    x = np.ones((3, 64), np.float32)
    x[0, :32] = 0
    x[1, 3] = np.nan
    x[2, 3] = np.inf

    a = quantize_activations(x, 127)

    assert not a.codes[:, :32].any()
    assert np.array_equal(a.dx[:, 0], np.array([0, np.nan, np.inf], np.float32), equal_nan=True)
    assert np.isnan(a.xs[1:, 0]).all()
    assert np.isfinite(a.xs[:, 1]).all()


@every_type
@both_precisions
def test_products_with_a_nan_activation_are_nan_for_that_column_alone(t, precision):
    x = np.ones((3, 256), np.float32)
    x[1, 40] = np.nan

    y = matmul_bits(t, finite_blocks(t, 4, 256), x, precision)

    assert np.isnan(y).any(1).tolist() == [False, True, False]
    assert np.isnan(y[1]).all()


def finite_blocks(t, rows, k, seed=0):
    """Random codes and sub-scales under sane float scales."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows, k // t.values, t.bytes), dtype=np.uint8)
    if t.kind == "float":
        return t.format.encode(rng.standard_normal((rows, k)).astype(np.float32))
    at = 208 if t.group == 16 else 0
    width = 4 if t.minimum else 2
    scales = rng.uniform(-0.01, 0.01, (*blocks.shape[:2], width // 2)).astype(np.float16)
    blocks[..., at : at + width] = scales.view(np.uint8)
    return blocks


@every_type
@both_precisions
def test_matmul_bits_differ_from_exact_by_the_rounding_of_activations(t, precision):
    blocks = finite_blocks(t, 21, 512)
    x = np.random.default_rng(4).standard_normal((7, 512)).astype(np.float32)

    y = matmul_bits(t, blocks, x, precision)

    dense = np.abs(t.format.decode(blocks).astype(np.float64))
    step = np.abs(x).reshape(7, -1, 32).max(-1).repeat(32, 1) / LIMITS[precision]
    rounding = 0 if t.kind == "float" else (step / 2) @ dense.T
    parts = np.abs(x).astype(np.float64) @ magnitudes(t, blocks).T
    assert y.dtype == np.float32
    assert y.shape == (7, 21)
    assert np.all(np.abs(y - matmul_exact(t, blocks, x)) <= rounding + SUM_RTOL * parts)


def magnitudes(t, blocks):
    """|scale * code| + |minimum|: what is summed before codes and minima cancel."""
    if t.kind == "float":
        return np.abs(t.format.decode(blocks).astype(np.float64))
    w = t.format.ints(blocks)
    per = w.codes.shape[1] // w.d.shape[1]
    sub = 1 if w.sub is None else w.sub.repeat(16, 1)
    out = np.abs(w.d.astype(np.float64).repeat(per, 1) * sub * w.codes)
    if w.dm is not None:
        mins = 1 if w.mins is None else w.mins.repeat(32, 1)
        out += np.abs(w.dm.astype(np.float64).repeat(per, 1) * mins)
    return out


@every_type
@both_precisions
def test_matmul_bits_are_the_same_for_every_subset_of_rows_and_columns(t, precision):
    blocks = finite_blocks(t, 9, 512)
    x = np.random.default_rng(5).standard_normal((9, 512)).astype(np.float32)

    whole = matmul_bits(t, blocks, x, precision)

    assert np.array_equal(whole[3:5, 2:8], matmul_bits(t, blocks[2:8], x[3:5], precision))
    assert np.array_equal(np.diagonal(whole), dot_bits(t, blocks, x, precision))


@pytest.mark.parametrize(
    "t", [t for t in TYPES.values() if t.kind != "float"], ids=lambda t: t.name
)
def test_integers_times_scales_are_the_decoded_weights(t):
    blocks = finite_blocks(t, 3, 512)
    w = t.format.ints(blocks)
    per = 512 // w.d.shape[1]

    sub = 1 if w.sub is None else w.sub.repeat(16, 1)
    dense = w.d.astype(np.float64).repeat(per, 1) * sub * w.codes
    if w.dm is not None:
        mins = 1 if w.mins is None else w.mins.repeat(32, 1)
        dense = dense - w.dm.astype(np.float64).repeat(per, 1) * mins

    assert np.array_equal(dense.astype(np.float32), t.format.decode(blocks))


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K"])
def test_the_largest_integers_fit_int32_at_both_precisions(name):
    t = TYPES[name]
    blocks = np.full((1, 1, t.bytes), 255, np.uint8)
    at = 208 if t.group == 16 else 0
    blocks[..., at : at + 2] = np.array([1], np.float16).view(np.uint8)
    if t.minimum:
        blocks[..., 2:4] = 0
    else:
        blocks[..., :192] = 0  # code -32 under sub-scale -128
        blocks[..., 192:208] = 128
    x = np.full((1, 256), 3, np.float32)

    for precision in LIMITS:
        y = matmul_bits(t, blocks, x, precision)

        exact = 256 * 3 * {"Q4_K": 63 * 15, "Q5_K": 63 * 31, "Q6_K": 128 * 32}[name]
        assert abs(y[0, 0] / exact - 1) < SUM_RTOL


def test_an_unknown_precision_is_refused_with_the_known_ones():
    t = TYPES["Q8_0"]

    with pytest.raises(QuantError, match=r"'fp8'.*\n.*int8, int16"):
        matmul_bits(t, finite_blocks(t, 1, 32), np.zeros((1, 32), np.float32), "fp8")
