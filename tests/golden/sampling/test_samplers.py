"""The chain against candidate sets, probabilities and draws that llama.cpp's C API gave."""

import json
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime.sampling import Sampling

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
# llama.cpp works in float32 in another order of summation.
LOGIT_RTOL, PROBABILITY_ATOL = 1e-5, 1e-5
OURS = {
    "top_k": lambda a: {"top_k": a["k"]},
    "top_p": lambda a: {"top_p": a["p"]},
    "min_p": lambda a: {"min_p": a["p"]},
    "temp": lambda a: {"temperature": max(0.0, a["t"])},
    "penalties": lambda a: {
        "repeat_penalty": a["repeat"],
        "frequency_penalty": a["frequency"],
        "presence_penalty": a["presence"],
        "repeat_last_n": a["last_n"],
    },
}


@pytest.fixture(scope="module")
def folder():
    return Path(__file__).parents[2] / "data" / "samplers"


@pytest.fixture(scope="module")
def vectors(folder):
    raw = json.loads((folder / "vectors.json").read_text())
    named = {k: np.array(x, np.float32) for k, x in raw.items() if isinstance(x, list)}
    x, values = 12345, []
    for _ in range(3000):
        x = (1103515245 * x + 12345) % 2**31
        values.append(x / 2**31 * 24 - 12)
    return named | {"lcg3000": np.array(values, np.float32)}


def falling(ids, logits):
    order = np.lexsort((ids, -logits))
    return ids[order], logits[order]


def softmax(x):
    e = np.exp(x.astype(np.float64) - float(x.max()))
    return e / e.sum()


def compare(case, ids, logits):
    ids, logits = falling(ids, logits)
    want = np.array(case["logits"], np.float32)
    assert len(ids) == case.get("count", len(case["ids"]))
    listed = len(want)
    if not case.get("ties"):
        assert ids[:listed].tolist() == case["ids"]
    np.testing.assert_allclose(logits[:listed], want, rtol=LOGIT_RTOL)
    np.testing.assert_allclose(softmax(logits)[:listed], case["probs"], atol=PROBABILITY_ATOL)


def test_each_sampler_leaves_the_candidates_of_llama_cpp(golden, vectors):
    cases = json.loads((golden / "text" / "samplers" / "single.json").read_text())
    done = 0
    for case in cases:
        if case["sampler"] not in OURS or case["args"].get("min_keep", 0) > 1:
            continue
        sampling = Sampling(**(OFF | OURS[case["sampler"]](case["args"])))
        compare(case, *sampling.candidates(vectors[case["vector"]], case.get("history", [])))
        done += 1
    assert done >= 200


def neutral(name, args):
    """Samplers of later issues that are switched off in this chain."""
    return (
        (name == "top_n_sigma" and args[0] <= 0)
        or (name == "typical" and args[0] >= 1)
        or (name == "xtc" and args[0] <= 0)
    )


def as_parameters(chain):
    """Our parameters for a chain in our order, else None."""
    order = ["penalties", "top_k", "top_p", "min_p", "temp", "temp_ext"]
    out, last = dict(OFF), -1
    for name, *args in chain:
        if neutral(name, args):
            continue
        if name not in order or order.index(name) < last or (name == "temp_ext" and args[1] > 0):
            return None
        last = order.index(name)
        if name == "penalties":
            keys = ("repeat_last_n", "repeat_penalty", "frequency_penalty", "presence_penalty")
            out |= dict(zip(keys, args[1:], strict=True))
        else:
            out[name if name in out else "temperature"] = args[0]
    return out


def test_whole_chains_leave_the_candidates_of_llama_cpp(folder, vectors):
    done = 0
    for case in json.loads((folder / "chains.json").read_text()):
        parameters = as_parameters(case["chain"])
        if parameters is None:
            continue
        compare(case, *Sampling(**parameters).candidates(vectors[case["vector"]], case["history"]))
        done += 1
    assert done >= 15


def test_draws_equal_llama_cpp_when_given_its_random_numbers(folder, vectors):
    sampling = Sampling(**OFF)
    for case in json.loads((folder / "dist.json").read_text()):
        words = np.random.RandomState(case["seed"])
        for want in case["selected"]:
            low, high = (int(words.randint(0, 2**32, dtype=np.uint32)) for _ in range(2))
            u = (low + high * 2**32) / 2**64
            assert sampling.draw(vectors[case["vector"]], u) == want
