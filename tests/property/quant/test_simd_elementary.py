"""The polynomials of the vocabulary against float64, within the bounds of their module's docstring."""

import numpy as np
import pytest

from quant.simd import elementary

RNG = np.random.default_rng(0)
X = np.concatenate(
    [
        np.linspace(-110, 95, 40001),
        RNG.normal(0, 1, 20000),
        RNG.normal(0, 1e-3, 5000),
        [0.0, -0.0, 1e-40, -1e-40, 88.72, -103.9, -104.1],
    ]
).astype(np.float32)
DOWN_TO = {"exp": -200.0, "sigmoid": -87.0, "tanh": -200.0, "silu": -87.0}
ULPS = {"exp": 1.1, "sigmoid": 2.5, "tanh": 1.5, "silu": 2.5}


def truth(name, x):
    x = x.astype(np.float64)
    with np.errstate(over="ignore"):
        if name == "exp":
            return np.exp(x)
        if name == "tanh":
            return np.tanh(x)
        if name == "gelu":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return (x if name == "silu" else 1.0) / (1 + np.exp(-x))


@pytest.mark.parametrize("name", ULPS)
def test_error_stays_within_the_stated_ulps(name):
    want = truth(name, X)
    with np.errstate(over="ignore"):
        keep = (DOWN_TO[name] <= X) & np.isfinite(want.astype(np.float32))
    got = getattr(elementary, name + "_bits")(X)

    step = np.spacing(np.maximum(np.abs(want[keep]).astype(np.float32), np.float32(2**-126)))
    assert np.max(np.abs(got[keep] - want[keep]) / step.astype(np.float64)) <= ULPS[name]


def test_sigmoid_far_below_zero_is_within_an_absolute_bound():
    x = np.linspace(-400, -87, 5000).astype(np.float32)
    assert np.max(np.abs(elementary.sigmoid_bits(x) - truth("sigmoid", x))) <= 2.0**-125


def test_gelu_error_is_relative_to_its_argument():
    got, want = elementary.gelu_bits(X), truth("gelu", X)
    assert np.all(np.abs(got - want) <= 2e-7 * np.abs(X))


def test_the_ends_are_exact():
    ends = np.float32([0.0, -0.0, -np.inf, np.inf, 89.5])
    assert np.array_equal(elementary.exp_bits(ends), np.float32([1, 1, 0, np.inf, np.inf]))
    assert np.array_equal(elementary.tanh_bits(ends[:4]), np.float32([0, 0, -1, 1]))
    assert np.signbit(elementary.tanh_bits(ends[:2])).tolist() == [False, True]
    assert np.array_equal(elementary.sigmoid_bits(ends[2:4]), np.float32([0, 1]))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "gelu", "silu"])
def test_nan_stays_nan(name):
    got = getattr(elementary, name + "_bits")(np.float32([np.nan, -np.nan, 1.0]))
    assert np.isnan(got).tolist() == [True, True, False]
