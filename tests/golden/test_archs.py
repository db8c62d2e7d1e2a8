"""Kernels against transformers: tiny models of every architecture, quantized ones beside llama.cpp."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_runtime import Model
from gguf_runtime.errors import ModelError
from tests.archs import HF, QUANTIZED, TOLERANCE, UNTOLD_WINDOW, WIDER, path_of, reference

ALLOWED = 1.0  # median error of the quantized models, as a share of llama.cpp's
WORST = 2.0  # and of any one of them

CASES = [*((name, "hf") for name in HF), *((name, "hf_like_llamacpp") for name in UNTOLD_WINDOW)]


@pytest.mark.parametrize(("name", "key"), CASES)
def test_float_models_give_the_logits_of_transformers(name: str, key: str):
    data = reference(name)
    ids = data["tokens"].tolist()

    with Model(path_of(f"{name}.gguf"), context=256, cache_type="f32") as model:
        whole = model.logits(ids)
        with model.session() as session:
            single = np.stack([session.feed([i]) for i in ids])

    tolerance = WIDER.get(name, TOLERANCE)
    assert np.abs(whole - data[key]).max() <= tolerance
    assert np.abs(single - data[key]).max() <= tolerance


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_quantized_models_are_as_close_to_exact_weights_as_llamacpp(precision):
    ratios = {}
    for name in QUANTIZED:
        data = reference(name)
        target = data["hf_deq"].astype(np.float64)
        path = path_of(f"{name}.gguf")
        with Model(path, context=256, cache_type="f32", precision=precision) as model:
            ours = model.logits(data["tokens"].tolist())
        ratios[name] = rms(ours - target) / rms(data["llamacpp"] - target)

    assert np.median(list(ratios.values())) <= ALLOWED, ratios
    assert max(ratios.values()) <= WORST, ratios


def test_experts_are_refused_by_name_and_number():
    with pytest.raises(ModelError, match=r'"llama" with 6 experts') as refused:
        Model(path_of("mixtral.gguf"))

    assert refused.value.exit_code == 3
    assert "mixtral.gguf" in str(refused.value)


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))
