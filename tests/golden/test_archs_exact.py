"""The exact path against transformers: tiny models of every architecture, and two real ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime.arch import load
from gguf_runtime.errors import ModelError
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.exact import Exact
from gguf_runtime.hub.resolve import resolve
from tests.archs import GOLDEN, HF, QUANTIZED, TOLERANCE, UNTOLD_WINDOW, WIDER, path_of, reference

REORDERED = 1e-11  # float64 sums in another order
REAL_TOLERANCE = 1e-5  # exact_top holds float32 logits


def exact_and_reference(name: str) -> tuple[Exact, dict[str, np.ndarray]]:
    file = open_file(path_of(f"{name}.gguf"))
    return Exact(load(file).graph, file), reference(name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((name, "hf") for name in HF),
        *((name, "hf_like_llamacpp") for name in UNTOLD_WINDOW),
        *((name, "hf_deq") for name in QUANTIZED),
    ],
)
def test_logits_equal_those_of_transformers(name: str, key: str):
    exact, data = exact_and_reference(name)

    logits, hidden = exact.forward(exact.sequence(), data["tokens"])

    assert hidden.shape == (len(data["tokens"]), exact.graph.n_embd)
    assert np.abs(logits - data[key]).max() <= WIDER.get(name, TOLERANCE)


@pytest.mark.parametrize("name", ["gemma3", "qwen2"])
def test_tokens_one_by_one_give_the_logits_of_the_whole_prompt(name: str):
    exact, data = exact_and_reference(name)
    whole, _ = exact.forward(exact.sequence(), data["tokens"])

    sequence = exact.sequence()
    single = [exact.forward(sequence, [t])[0][0] for t in data["tokens"]]

    assert len(sequence) == len(data["tokens"])
    assert np.abs(whole - single).max() <= REORDERED


def test_a_fork_and_a_truncated_sequence_go_on_where_they_stand():
    exact, data = exact_and_reference("qwen3")
    ids = data["tokens"]
    whole, _ = exact.forward(exact.sequence(), ids)
    sequence = exact.sequence()
    exact.forward(sequence, ids[:20])
    twin = sequence.fork()
    exact.forward(sequence, ids[:5])

    sequence.truncate(20)

    for s in (sequence, twin):
        logits, _ = exact.forward(s, ids[20:], outputs=[len(ids) - 21])
        assert np.abs(logits[0] - whole[-1]).max() <= REORDERED


def test_experts_are_refused_by_name():
    with pytest.raises(ModelError, match="experts"):
        load(open_file(path_of("mixtral.gguf")))


@pytest.mark.parametrize(
    ("model", "catalog_name"), [("smollm2", "smollm2"), ("gemma", "gemma-3-270m")]
)
def test_real_weights_give_the_exact_logits(model: str, catalog_name: str):
    if not GOLDEN:
        pytest.skip("GGUF_RUNTIME_GOLDEN is not set")
    try:
        path = resolve(catalog_name)
    except ModelError as error:
        pytest.skip(str(error))
    real = Path(GOLDEN) / "real"
    prompts = json.loads((real / "INDEX.json").read_text())["prompts"]
    ids = next(p["ids"] for p in prompts if (p["model"], p["name"]) == (model, "chat"))
    with np.load(real / "exact_top.npz") as data:
        best, logits = data[f"{model}_chat_ids"], data[f"{model}_chat_logits"]
    file = open_file(path)
    exact = Exact(load(file).graph, file)

    got, _ = exact.forward(exact.sequence(), ids)

    assert (
        np.abs(np.take_along_axis(got, best.astype(np.int64), 1) - logits).max() <= REAL_TOLERANCE
    )
