"""`GGUF_RUNTIME_EXACT=1`: the same `Model`, computed by plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_runtime import Model
from gguf_runtime.arch.table import load
from gguf_runtime.errors import RequestError
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.exact import Exact
from tests.archs import path_of, reference

NAMES = ["gemma3", "llama-fused-qkv", "quant-llama-q4_k_m", "quant-qwen3-q8_0"]
ROUNDED = 2e-6  # to float32, and float64 sums in another order
FLOAT_KERNELS = 1e-4  # kernels with float weights and an f32 cache


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setenv("GGUF_RUNTIME_EXACT", "1")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gives_the_logits_of_the_executor(name):
    ids = reference(name)["tokens"].tolist()
    file = open_file(path_of(f"{name}.gguf"))
    executor = Exact(load(file).graph, file)
    logits, hidden = executor.forward(executor.sequence(), ids)

    with Model(path_of(f"{name}.gguf"), context=256) as model:
        assert model.isa == "exact"
        assert np.array_equal(model.logits(ids), logits.astype(np.float32))
        assert np.array_equal(model.hidden(ids), hidden.astype(np.float32))
        assert np.abs(model.logits(ids, chunk=7) - logits).max() <= ROUNDED
        assert np.array_equal(model.logits(ids, "last")[0], logits[-1].astype(np.float32))


@pytest.mark.parametrize("name", ["gemma3", "llama-fused-qkv"])
def test_kernels_are_close_to_it(name, monkeypatch):
    ids = reference(name)["tokens"].tolist()
    path = path_of(f"{name}.gguf")
    with Model(path, context=256) as model:
        exact = model.logits(ids)
    monkeypatch.delenv("GGUF_RUNTIME_EXACT")

    with Model(path, context=256, cache_type="f32") as model:
        assert model.isa != "exact"
        assert np.abs(model.logits(ids) - exact).max() <= FLOAT_KERNELS


def test_sessions_and_answers_run_on_it():
    ids = reference("gemma3")["tokens"].tolist()
    with Model(path_of("gemma3.gguf"), context=64) as model:
        whole = model.logits(ids)
        with model.session() as session:
            session.feed(ids[:20])
            fork = session.fork()
            session.feed(ids[5:9])
            session.truncate(20)
            for s in (session, fork):
                assert np.abs(s.feed(ids[20:]) - whole[-1]).max() <= ROUNDED
            fork.close()

        answer = model.complete("abc", raw=True, max_tokens=8, temperature=0)
        again = model.complete("abc", raw=True, max_tokens=8, temperature=0)
        with model.session() as session:
            logits, greedy = session.feed(model.prompter.plain("abc", bos=True)), []
            while len(greedy) < len(answer.ids):
                greedy.append(int(logits.argmax()))
                logits = session.feed(greedy[-1:])

        assert answer.ids == again.ids == greedy != []
        with pytest.raises(RequestError, match="context"):
            model.logits(ids * 2)
