"""How far real models are from exact arithmetic: a quick measure beside llama.cpp's own figure.

Divergence is taken over 17 classes, the 16 tokens that exact arithmetic likes best and the rest; it
is about 0.7 of the full one, whose figures stand in docs/fidelity.md.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguf_runtime import Model

REAL = Path(__file__).parents[1] / "data" / "real"
INDEX: dict[str, Any] = json.loads((REAL / "prompts.json").read_text())
MODELS = list(INDEX["models"])

SHARE_OF_LLAMACPP = {"smollm2": 0.9, "gemma": 0.6}  # int8, f16 cache
TINY = {"f16": 1e-5, "f32": 1e-6}  # int16, by cache type: the f16 cache is what is left
CLEAR_MARGIN = 0.02  # between the two best logits: no rounding of int16 turns that around


class Measured:
    """One model over its prompts; arrays over all positions, in order."""

    def __init__(self) -> None:
        self.kl: list[float] = []
        self.agrees: list[bool] = []
        self.margins: list[float] = []

    def add(self, logits: np.ndarray, best: np.ndarray, exact: np.ndarray, total: np.ndarray):
        """Logits (n, n_vocab), and ids, logits (n, 16) and logsumexp (n,) of exact arithmetic."""
        normal = np.concatenate(
            [logsumexp(part) for part in np.split(logits, range(8, len(logits), 8))]
        )
        lq = np.take_along_axis(logits, best, 1).astype(np.float64) - normal[:, None]
        lp = exact - total[:, None]
        rest_p, rest_q = (np.maximum(1 - np.exp(l).sum(-1), 1e-30) for l in (lp, lq))
        kl = (np.exp(lp) * (lp - lq)).sum(-1) + rest_p * np.log(rest_p / rest_q)
        order = np.argsort(-exact, axis=1, kind="stable")
        first, second = (np.take_along_axis(exact, order[:, k : k + 1], 1)[:, 0] for k in (0, 1))
        self.kl += kl.tolist()
        self.agrees += (logits.argmax(-1) == best[np.arange(len(best)), order[:, 0]]).tolist()
        self.margins += (first - second).tolist()


def logsumexp(logits: np.ndarray) -> np.ndarray:
    top = logits.max(-1).astype(np.float64)
    return np.log(np.exp(logits - top[:, None]).sum(-1)) + top


@cache
def measure(name: str, path: Path, precision: Any, cache_type: Any) -> Measured:
    measured = Measured()
    prompts = [p for p in INDEX["prompts"] if p["model"] == name]
    context = max(len(p["ids"]) for p in prompts)
    with (
        np.load(REAL / "exact_top.npz") as top,
        Model(path, precision=precision, cache_type=cache_type, context=context) as model,
    ):
        for p in prompts:
            key = f"{name}_{p['name']}"
            exact = (top[f"{key}_{part}"] for part in ("ids", "logits", "logsumexp"))
            best, logits, total = exact
            ours = model.logits(p["ids"])
            measured.add(ours, best.astype(np.int64), logits.astype(np.float64), total)
    return measured


@pytest.fixture(params=MODELS)
def weights(request, model_path):
    """(name, path) of a model; skips where its weights are not on this machine."""
    return request.param, model_path(INDEX["models"][request.param]["catalog"])


def test_int8_is_closer_to_exact_than_llamacpp(weights):
    name, path = weights
    peer = INDEX["models"][name]

    ours = measure(name, path, "int8", "f16")

    assert np.mean(ours.kl) <= SHARE_OF_LLAMACPP[name] * peer["llamacpp_mean_kl_top16"]
    assert np.mean(ours.agrees) >= peer["llamacpp_top1_agreement"] - 1e-6  # a rounded figure


@pytest.mark.parametrize("cache_type", list(TINY))
def test_int16_is_the_arithmetic_of_the_file_itself(weights, cache_type):
    name, path = weights

    ours = measure(name, path, "int16", cache_type)

    assert np.mean(ours.kl) <= TINY[cache_type]
    clear = np.array(ours.margins) >= CLEAR_MARGIN
    assert clear.mean() > 0.9
    assert np.all(np.array(ours.agrees)[clear])
