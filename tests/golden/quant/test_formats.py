"""Decoders, ruled quantizers and searches against llama.cpp's own bytes and figures."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from quant import dequantize, quantize
from quant.types import TYPES

DATA = Path(__file__).parents[2] / "data/quants"
GOLDEN = os.environ.get("GGUF_RUNTIME_GOLDEN")
SOURCES = [
    "sample",
    pytest.param(
        "whole",
        marks=pytest.mark.skipif(not GOLDEN, reason="GGUF_RUNTIME_GOLDEN names no folder"),
    ),
]
every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
every_source = pytest.mark.parametrize("which", SOURCES)


@cache
def sample():
    with np.load(DATA / "formats.npz") as z:
        return dict(z)


def arrays(which, t):
    if which == "whole":
        with np.load(Path(GOLDEN or "") / f"quants/{t.name}.npz") as z:
            return dict(z)
    prefix = f"{t.name}."
    own = {k.removeprefix(prefix): v for k, v in sample().items() if k.startswith(prefix)}
    return own | {"source": sample()["source"]}


def same_bits(a, b):
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


@every_type
@every_source
def test_dequantize_equals_llama_cpp_in_every_bit(t, which):
    z = arrays(which, t)

    assert same_bits(dequantize(z["blocks"], t), z["floats"]).all()


@every_type
@every_source
def test_dequantize_equals_llama_cpp_on_hostile_scales(t, which):
    z = arrays(which, t)

    got = dequantize(z["hostile_blocks"], t)

    assert not np.isfinite(z["hostile_floats"]).all()
    assert same_bits(got, z["hostile_floats"]).all()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@every_source
def test_ruled_quantizers_write_llama_cpps_bytes(name, which):
    z = arrays(which, TYPES[name])

    got = quantize(z["source"], name)

    assert np.array_equal(got, z["quantized_ruled"])


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("weighed", [False, True], ids=["plain", "importance"])
def test_searched_quantizers_err_no_more_than_llama_cpps(name, weighed, figures):
    x, importance = seeded_weights()
    w = importance if weighed else np.ones_like(importance)

    y = dequantize(quantize(x, name, importance if weighed else None), name)

    error = np.sqrt((w * (x - y.astype(np.float64)) ** 2).sum() / (w * x.astype(float) ** 2).sum())
    theirs = figures[name]["quantization_error"]
    assert error <= (
        theirs["with_imatrix"]["weighted_rel_rms"]
        if weighed
        else theirs["without_imatrix"]["rel_rms"]
    )


def seeded_weights():
    """The rows and the importance of INDEX.json, `quantization_error`."""
    rs = np.random.RandomState(4242)
    x = rs.standard_normal((64, 2048)).astype(np.float32) * np.float32(0.02)
    x[np.arange(64)[:, None], rs.randint(0, 2048, (64, 8))] *= np.float32(10)
    rs = np.random.RandomState(78)
    w = np.exp(0.8 * rs.standard_normal(2048))
    w[rs.randint(0, 2048, 32)] *= 50
    return x, w.astype(np.float32)


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K"])
def test_searched_quantizers_survive_awkward_rows(name):
    x = sample()["source"]
    awkward = [x, x * np.float32(2.0**-120), x * np.float32(1e30), np.zeros_like(x)]

    for rows in awkward:
        y = dequantize(quantize(rows, name), name)

        # A scale is a float16: beyond its range the nearest that it holds is all there is.
        assert np.isfinite(y).all()
        if rows is x:
            step = np.abs(x).max(1, keepdims=True) / 14 + 2.0**-24 * 63 * 16
            assert np.all(np.abs(y - x) <= step)


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K"])
def test_searched_quantizers_still_fit_columns_without_importance(name):
    x, w = seeded_weights()
    w[:1024] = 0

    y = dequantize(quantize(x[:4], name, w), name)

    assert np.sqrt(((y - x[:4]) ** 2).sum() / (x[:4] ** 2).sum()) < 0.2
