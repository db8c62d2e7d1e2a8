"""Errors of the arithmetic contract against llama.cpp's, on the row pairs of INDEX.json."""

from functools import cache

import numpy as np
import pytest

from quant import quantize
from quant.reference import dot_bits
from quant.types import TYPES

WORSE_AT_MOST = 1.1  # times llama.cpp's relative error
F32_ERROR = 1e-6  # the contract adds in one order, llama.cpp in lanes: its 1.5e-7 is out of reach


@cache
def pairs(kind):
    rs = np.random.RandomState(31337)
    w = rs.standard_normal((1024, 2048)).astype(np.float32) * np.float32(0.02)
    a = rs.standard_normal((1024, 2048)).astype(np.float32)
    if kind == "outliers":
        at = rs.randint(0, 2048, (1024, 4))
        a[np.arange(1024)[:, None], at] *= np.float32(20)
    return w, a


@cache
def blocks(t):
    return quantize(pairs("plain")[0], t).reshape(1024, -1, t.bytes)


@pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["plain", "outliers"])
@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_dot_error_is_at_most_llama_cpps(t, kind, precision, figures):
    _, a = pairs(kind)
    exact = (t.format.decode(blocks(t)).astype(np.float64) * a).sum(1)

    error = dot_bits(t, blocks(t), a, precision) - exact

    relative = np.sqrt((error**2).mean() / (exact**2).mean())
    theirs = figures[t.name]["vec_dot"][kind]
    assert relative <= (F32_ERROR if t.name == "F32" else WORSE_AT_MOST * theirs)
    if precision == "int16":
        assert relative < 1e-4
