"""quant.elementary against 60-digit arithmetic of the standard library's decimal."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest

from quant import elementary

MAX_ULP = 2.0
getcontext().prec = 60
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
)


def worst_ulp(got: np.ndarray, exact: list[Decimal]) -> float:
    pairs = zip(got.tolist(), exact, strict=True)
    errors = [abs(Decimal(g) - e) / Decimal(math.ulp(float(e))) for g, e in pairs]
    return float(max(errors))


def exact_sin(x: Decimal) -> Decimal:
    x -= (x / (2 * PI)).to_integral_value() * 2 * PI
    term, total, n = x, x, 1
    while abs(term) > Decimal("1e-55"):
        n += 2
        term = -term * x * x / (n * (n - 1))
        total += term
    return total


def spread(low: float, high: float, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, n)


def test_exp2_is_within_two_ulp():
    x = np.concatenate([spread(-1, 1, 200), spread(-1000, 1000, 200), [0.0, 1.0, -1.0, 0.5, 10.0]])
    assert worst_ulp(elementary.exp2(x), [Decimal(2) ** Decimal(v) for v in x.tolist()]) <= MAX_ULP


def test_log2_is_within_two_ulp_also_beside_one():
    x = np.concatenate(
        [spread(0.5, 2, 200), 1 + spread(-1e-6, 1e-6, 100), np.exp2(spread(-1000, 1000, 200))]
    )
    exact = [Decimal(v).ln() / Decimal(2).ln() for v in x.tolist()]
    assert worst_ulp(elementary.log2(x), exact) <= MAX_ULP


def test_pow_is_within_two_ulp_for_rope_bases():
    for base in (500.0, 10000.0, 500000.0, 1e6, 1e7, 1.5):
        y = -np.arange(0, 128, 2) / 128.0
        exact = [Decimal(base) ** Decimal(v) for v in y.tolist()]
        assert worst_ulp(elementary.pow(base, y), exact) <= MAX_ULP


@pytest.mark.parametrize(("name", "turn"), [("sin", Decimal(0)), ("cos", PI / 2)])
def test_sine_and_cosine_are_within_two_ulp_up_to_a_million(name: str, turn: Decimal):
    near = np.arange(1, 200) * (math.pi / 4)  # next to every zero and every border of the reduction
    x = np.concatenate([spread(-1, 1, 100), spread(-1e6, 1e6, 300), near, [0.0, 131071.0]])
    exact = [exact_sin(Decimal(v) + turn) for v in x.tolist()]
    assert worst_ulp(getattr(elementary, name)(x), exact) <= MAX_ULP


def test_powers_of_two_are_exact():
    n = np.arange(-1022.0, 1024.0)
    assert np.array_equal(elementary.exp2(n), np.ldexp(1.0, n.astype(int)))
    assert np.array_equal(elementary.log2(np.ldexp(1.0, n.astype(int))), n)


def test_arguments_out_of_range_are_refused():
    with pytest.raises(ValueError, match="2\\^20"):
        elementary.sin(2.0**21)
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive"):
            elementary.log2(bad)
