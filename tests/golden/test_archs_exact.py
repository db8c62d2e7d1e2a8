"""The exact path against transformers: tiny models of every architecture, and two real ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime.arch import load
from gguf_runtime.errors import ModelError
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.exact import Exact
from gguf_runtime.hub.resolve import resolve

COMMITTED = Path(__file__).parents[1] / "data" / "archs"
GOLDEN = os.environ.get("GGUF_RUNTIME_GOLDEN")

TOLERANCE = 2e-4  # twenty times what another float64 pass is away from float32 transformers
WIDER = {"qwen2-yarn": 3e-4}
REORDERED = 1e-11  # float64 sums in another order
REAL_TOLERANCE = 1e-5  # exact_top holds float32 logits

HF = [
    *("llama", "llama-bias-tied", "llama-fused-qkv", "llama-linear", "llama3-ropefreqs"),
    *("llama-yarn", "llama-yarn-attnfactor", "llama-yarn-beta", "mistral"),
    *("qwen2", "qwen2-yarn", "qwen3", "gemma3"),
]
UNTOLD_WINDOW = ["mistral-window", "qwen2-window"]  # nothing in the file tells of the window
QUANTIZED = ["quant-llama-q4_k_m", "quant-gemma3-q4_0", "quant-qwen3-q4_0", "quant-qwen3-q8_0"]


def path_of(name: str) -> Path:
    folders = [COMMITTED, *([Path(GOLDEN) / "archs"] if GOLDEN else [])]
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    pytest.skip(f"{name} is in GGUF_RUNTIME_GOLDEN only, which is not set")


def exact_and_reference(name: str) -> tuple[Exact, dict[str, np.ndarray]]:
    file = open_file(path_of(f"{name}.gguf"))
    with np.load(path_of(f"{name}.npz")) as data:
        return Exact(load(file).graph, file), dict(data)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        *((name, "hf") for name in HF),
        *((name, "hf_like_llamacpp") for name in UNTOLD_WINDOW),
        *((name, "hf_deq") for name in QUANTIZED),
    ],
)
def test_logits_equal_those_of_transformers(name: str, reference: str):
    exact, data = exact_and_reference(name)

    logits, hidden = exact.forward(exact.sequence(), data["tokens"])

    assert hidden.shape == (len(data["tokens"]), exact.graph.n_embd)
    assert np.abs(logits - data[reference]).max() <= WIDER.get(name, TOLERANCE)


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
