"""Logits do not depend, by a single bit, on how tokens are batched, chunked, fused or shared out.

Every test compares with the same prompt read in chunks of 64 by two threads and all fusions.
"""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime.engine.step import Entry, Stepper
from gguf_runtime.graph.fusions import FUSIONS
from tests.archs import path_of
from tests.engine import digest, feed, random_ids, same_bits, stepper

N_VOCAB = 272  # of the tiny models
FLOATS = ("gemma3", "qwen2", "llama-fused-qkv")
QUANTIZED = ("quant-llama-q4_k_m", "quant-qwen3-q4_0", "quant-gemma3-q4_0", "quant-qwen3-q8_0")
ROOMY = ("quant-llama-q4_k_m", "quant-qwen3-q4_0", "quant-qwen3-q8_0")  # heads that q8_0 fits

# model, precision, cache type
SETTINGS = [
    *((name, "int8", cache) for name in FLOATS for cache in ("f16", "f32")),
    *((name, precision, "f16") for name in QUANTIZED for precision in ("int8", "int16")),
    ("quant-qwen3-q4_0", "int8", "f32"),
    *((name, "int8", "q8_0") for name in ROOMY),
]
REAL = ["smollm2", "gemma-3-270m"]


def tiny(name: str, precision: str = "int8", cache_type: str = "f16", **more):
    return stepper(path_of(f"{name}.gguf"), precision=precision, cache_type=cache_type, **more)


@pytest.mark.parametrize(("name", "precision", "cache_type"), SETTINGS)
def test_chunks_and_batches_change_no_bit(name, precision, cache_type):
    ids, other = random_ids(N_VOCAB, 150, seed=1), random_ids(N_VOCAB, 150, seed=2)
    with tiny(name, precision, cache_type) as model:
        whole = feed(model, ids)

        for chunk in (1, 3, 8, 16):
            assert same_bits(feed(model, ids, chunk), whole), chunk
        assert same_bits(feed(model, ids, 150, {0, 63, 64, 149}), whole[[0, 63, 64, 149]])
        assert same_bits(beside(model, ids, other), whole)
        fork_and_go_on(model, ids, other, whole)


@pytest.mark.parametrize(("name", "precision", "cache_type"), SETTINGS)
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(name, precision, cache_type, threads):
    ids = random_ids(N_VOCAB, 100, seed=1)
    with tiny(name, precision, cache_type) as model:
        whole = feed(model, ids)

    with tiny(name, precision, cache_type, threads=threads) as model:
        assert same_bits(feed(model, ids), whole)
        assert same_bits(feed(model, ids[:40], 1), whole[:40])


@pytest.mark.parametrize(("name", "precision", "cache_type"), SETTINGS)
def test_fusions_change_no_bit(name, precision, cache_type):
    ids = random_ids(N_VOCAB, 80, seed=1)
    with tiny(name, precision, cache_type) as model:
        whole = feed(model, ids)
    usual = (precision, cache_type) == ("int8", "f16")

    for fuse in (False, *(FUSIONS - {one} for one in sorted(FUSIONS) if usual)):
        with tiny(name, precision, cache_type, fuse=fuse) as model:
            off = sorted(FUSIONS - fuse) if fuse else "all"
            assert same_bits(feed(model, ids), whole), off
            assert same_bits(feed(model, ids[:20], 1), whole[:20]), off
            assert same_bits(feed(model, ids, 80, {0, 79}), whole[[0, 79]]), off


@pytest.mark.parametrize("name", ["gemma3", "quant-gemma3-q4_0"])
def test_pages_that_a_window_has_left_change_no_bit(name):
    ids, other = random_ids(N_VOCAB, 500, seed=5), random_ids(N_VOCAB, 100, seed=6)
    with tiny(name) as model:
        whole = feed(model, ids)
        straight = feed(model, ids[:330] + other, wanted=range(330, 430))

    with tiny(name, n_batch=16, n_ctx=512) as model:
        assert same_bits(feed(model, ids, 16), whole)
        a = model.cache.sequence()
        feed(model, ids[:330], 15, (), a)
        b = a.fork()
        assert not b.resumable(64)
        for sequence, rest, expected in ((b, other, straight), (a, ids[330:], whole[330:])):
            assert same_bits(feed(model, rest, 7, sequence=sequence), expected)
        for sequence in (a, b):
            sequence.close()
        assert model.cache.used_bytes == 0


@pytest.mark.parametrize(("name", "precision"), [("gemma3", "int8"), (ROOMY[0], "int16")])
def test_contexts_of_several_spans_change_no_bit(name, precision):
    long_context(path_of(f"{name}.gguf"), precision, "f16", (1, 3, 100))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "cache_type"), SETTINGS)
def test_long_contexts_change_no_bit_with_any_setting(name, precision, cache_type):
    long_context(path_of(f"{name}.gguf"), precision, cache_type, (1, 3, 16, 100))


@pytest.mark.parametrize("name", REAL)
def test_real_weights_give_the_same_bits_however_they_are_run(name, model_path):
    with stepper(model_path(name), n_ctx=512) as model:
        n_vocab = model.loaded.arch.graph.n_vocab
        ids, other = random_ids(n_vocab, 40, seed=1), random_ids(n_vocab, 40, seed=2)
        whole = feed(model, ids)
        for chunk in (1, 3, 16):
            assert same_bits(feed(model, ids, chunk), whole), chunk
        assert same_bits(beside(model, ids, other), whole)
    for changed in ({"threads": 1}, {"fuse": False}):
        with stepper(model_path(name), n_ctx=512, **changed) as model:
            assert same_bits(feed(model, ids), whole), changed
            assert same_bits(feed(model, ids[:8], 1), whole[:8]), changed


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(
    ("precision", "cache_type"),
    [("int8", "f16"), ("int8", "q8_0"), ("int16", "f16"), ("int16", "f32")],
)
def test_real_weights_give_the_same_bits_in_long_contexts(name, precision, cache_type, model_path):
    long_context(model_path(name), precision, cache_type, (16, 100))


# ---- what the tests do ---------------------------------------------------------------------------


def beside(model: Stepper, ids: list[int], other: list[int], wanted=None) -> np.ndarray:
    """Logits of ids, each step shared with a neighbour, now before and now behind it."""
    ours, theirs = model.cache.sequence(), model.cache.sequence()
    steps = np.random.default_rng(0)
    out = []
    while ours.length < len(ids):
        pos, at = ours.length, theirs.length
        part = ids[pos : pos + int(steps.choice([1, 2, 5, 31]))]
        rows = [k for k in range(len(part)) if wanted is None or pos + k in wanted]
        near = other[at : at + int(steps.choice([1, 4, 29]))]
        entries = [Entry(ours, part, rows)]
        first = bool(near) and bool(steps.integers(2))
        if near:
            entries.insert(0 if first else 1, Entry(theirs, near, [len(near) - 1]))
        logits = model.step(entries)[0]
        out.append(logits[first : first + len(rows)].copy())
    ours.close()
    theirs.close()
    return np.concatenate(out)


def fork_and_go_on(model: Stepper, ids: list[int], other: list[int], whole: np.ndarray) -> None:
    """Three sequences that share a page write different tokens into it, in one step."""
    straight = feed(model, ids[:100] + other[:40])
    a = model.cache.sequence()
    feed(model, ids[:100], sequence=a)
    b, c = a.fork(), a.fork()

    entries = [Entry(b, other[:20], [19]), Entry(a, ids[100:103], [2]), Entry(c, ids[100:120], [7])]
    logits = model.step(entries)[0].copy()

    assert same_bits(logits, np.stack([straight[119], whole[102], whole[107]]))
    d = b.fork()
    b.close()
    assert same_bits(feed(model, other[20:40], 7, sequence=d), straight[120:])
    c.truncate(105)
    assert same_bits(feed(model, ids[105:130], 9, sequence=c), whole[105:130])
    for s in (a, c, d):
        s.close()
    assert model.cache.used_bytes == 0


def long_context(path: Path, precision: str, cache_type: str, chunks: tuple[int, ...]) -> None:
    """More than two spans of 512 positions, and more than the windows of real models."""
    n = 1150
    wanted = {*range(0, n, 97), 511, 512, 513, 1023, 1024, 1025, n - 1}
    with stepper(path, precision=precision, cache_type=cache_type) as model:
        n_vocab = model.loaded.arch.graph.n_vocab
        ids, other = random_ids(n_vocab, n, seed=3), random_ids(n_vocab, n, seed=4)
        whole = feed(model, ids, 512, wanted)
        for chunk in chunks:
            assert same_bits(feed(model, ids, chunk, wanted), whole), chunk
        single = feed(model, ids, chain([512, 508], repeat(1, 20), [64]), wanted)
        assert same_bits(single, whole)
        assert same_bits(beside(model, ids, other, wanted), whole)
        assert digest(feed(model, other, 512, wanted)) != digest(whole)
    with stepper(path, precision=precision, cache_type=cache_type, threads=1) as model:
        assert same_bits(feed(model, ids, 300, wanted), whole)
