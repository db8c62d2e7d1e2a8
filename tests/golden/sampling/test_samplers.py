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
    "typical": lambda a: {"typical_p": a["p"]},
    "top_n_sigma": lambda a: {"top_n_sigma": a["n"]},
    "xtc": lambda a: {"xtc_probability": a["probability"], "xtc_threshold": a["threshold"]},
    "temp_ext": lambda a: {
        "temperature": a["t"],
        "dynatemp_range": a["delta"],
        "dynatemp_exponent": a["exponent"],
    },
    "logit_bias": lambda a: {"logit_bias": [(i, float(b)) for i, b in a["biases"]]},
    "dry": lambda a: {
        "dry_multiplier": a["multiplier"],
        "dry_base": a["base"],
        "dry_allowed_length": a["allowed_length"],
        "dry_last_n": a["last_n"],
        "dry_breakers": a["breakers"],
    },
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
    lists = {k: x for k, x in raw.items() if isinstance(x, list)}
    named = {k: np.array([float(y) for y in x], np.float32) for k, x in lists.items()}
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
    want = np.array([float(x) for x in case["logits"]], np.float32)
    assert len(ids) == case.get("count", len(case["ids"]))
    listed = len(want)
    if not case.get("ties"):
        assert ids[:listed].tolist() == case["ids"]
    np.testing.assert_allclose(logits[:listed], want, rtol=LOGIT_RTOL)
    np.testing.assert_allclose(softmax(logits)[:listed], case["probs"], atol=PROBABILITY_ATOL)


# In kernels where the chain has one of theirs only, and in numpy: a bias of nothing asks for that.
@pytest.mark.parametrize("other", [{}, {"logit_bias": {10**6: 0.0}}], ids=["kernels", "numpy"])
def test_each_sampler_leaves_the_candidates_of_llama_cpp(golden, vectors, other):
    cases = json.loads((golden / "text" / "samplers" / "single.json").read_text())
    for case in cases:
        args = case["args"]
        asked = OFF | other | OURS[case["sampler"]](args) | {"min_keep": args.get("min_keep", 0)}
        sampling = Sampling(**asked)
        compare(case, *sampling.candidates(vectors[case["vector"]], case.get("history", [])))
    assert len(cases) == 526


def as_parameters(chain):
    """Our parameters for a chain of llama.cpp's."""
    keys = {
        "penalties": (
            "",
            "repeat_last_n",
            "repeat_penalty",
            "frequency_penalty",
            "presence_penalty",
        ),
        "top_n_sigma": ("top_n_sigma",),
        "top_k": ("top_k",),
        "typical": ("typical_p", "min_keep"),
        "top_p": ("top_p", "min_keep"),
        "min_p": ("min_p", "min_keep"),
        "xtc": ("xtc_probability", "xtc_threshold"),
        "temp": ("temperature",),
        "temp_ext": ("temperature", "dynatemp_range", "dynatemp_exponent"),
    }
    out = dict(OFF)
    for name, *args in chain:
        out |= dict(zip(keys[name], args, strict=False))
    out.pop("", None)
    return out | {"samplers": [name.removesuffix("_ext") for name, *_ in chain]}


def test_whole_chains_leave_the_candidates_of_llama_cpp(folder, vectors):
    cases = json.loads((folder / "chains.json").read_text())
    for case in cases:
        sampling = Sampling(**as_parameters(case["chain"]))
        compare(case, *sampling.candidates(vectors[case["vector"]], case["history"]))
    assert len(cases) == 35


def test_samplers_with_a_memory_go_the_way_of_llama_cpp(golden, vectors):
    steps = 0
    for case in json.loads((golden / "text" / "samplers" / "steps.json").read_text()):
        args = case["args"]
        asked = (
            {"adaptive_target": args["target"], "adaptive_decay": args["decay"]}
            if case["sampler"] == "adaptive_p"
            else {
                "mirostat": 1 + case["sampler"].endswith("v2"),
                "mirostat_tau": args["tau"],
                "mirostat_eta": args["eta"],
                "mirostat_m": args.get("m"),
            }
        )
        sampling = Sampling(**OFF, **asked)
        for step in case["steps"]:
            ids, logits = sampling.candidates(vectors[case["vector"]])
            if "logits" in step:
                falling_logits = np.sort(logits)[::-1][: len(step["logits"])]
                np.testing.assert_allclose(falling_logits, step["logits"], rtol=1e-4, atol=1e-4)
            else:
                assert sorted(ids.tolist()) == sorted(step["ids"])
            sampling.accept(step["selected"])
            steps += 1
    assert steps == 160


def test_draws_equal_llama_cpp_when_given_its_random_numbers(folder, vectors):
    sampling = Sampling(**OFF)
    for case in json.loads((folder / "dist.json").read_text()):
        words = np.random.RandomState(case["seed"])
        for want in case["selected"]:
            low, high = (int(words.randint(0, 2**32, dtype=np.uint32)) for _ in range(2))
            u = (low + high * 2**32) / 2**64
            assert sampling.draw(vectors[case["vector"]], u) == want
