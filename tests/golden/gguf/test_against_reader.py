"""The same metadata, tensors and bytes as the reader of the gguf package (0.19) finds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from gguf_runtime.gguf import StringArray, open_file
from gguf_runtime.hub.places import models_dir

HERE = Path(__file__).parents[2] / "data" / "archs"
GOLDEN = os.environ.get("GGUF_RUNTIME_GOLDEN")
ARCHS = sorted((Path(GOLDEN) / "archs" if GOLDEN else HERE).glob("*.gguf"))
MODELS = sorted(Path(os.environ.get("GGUF_RUNTIME_TEST_MODELS") or models_dir()).rglob("*.gguf"))
PROMISED_S = 0.5


def strings_of(field) -> list[bytes]:
    return [field.parts[i].tobytes() for i in field.data]


@pytest.mark.parametrize("path", ARCHS, ids=lambda p: p.stem)
def test_everything_equals_what_the_gguf_package_reads(path):
    theirs, ours = gguf.GGUFReader(path), open_file(path)

    fields = {k: v for k, v in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for key, field in fields.items():
        value = ours.metadata[key]
        if isinstance(value, StringArray):
            assert value.tolist() == strings_of(field)
        elif isinstance(value, np.ndarray):
            assert value.tolist() == field.contents()
        else:
            assert value == field.contents()
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for t in theirs.tensors:
        info = ours.tensors[t.name]
        assert info.shape == tuple(int(n) for n in t.shape)
        assert (info.type_id, info.offset) == (int(t.tensor_type), int(t.data_offset))
        assert info.size_bytes == t.n_bytes
        assert np.array_equal(
            ours.tensor_bytes(t.name).reshape(-1), t.data.view(np.uint8).reshape(-1)
        )


NO_MODELS = pytest.mark.skipif(not MODELS, reason="no model files: gguf-runtime pull smollm2")


def big_vocabularies_are_slow(path: Path):
    """The package's reader needs ten seconds and more for 262,144 tokens."""
    big = len(open_file(path).metadata["tokenizer.ggml.tokens"]) > 100_000
    return pytest.param(path, marks=pytest.mark.slow if big else (), id=path.stem)


@NO_MODELS
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_a_real_model_opens_within_the_promise(path):
    start = time.perf_counter()
    file = open_file(path)
    assert time.perf_counter() - start < 5 * PROMISED_S
    assert file.manifest().vocabulary.n_tokens == len(file.metadata["tokenizer.ggml.tokens"])


@NO_MODELS
@pytest.mark.parametrize("path", [big_vocabularies_are_slow(p) for p in MODELS])
def test_a_real_model_equals_what_the_gguf_package_reads(path):
    ours, theirs = open_file(path), gguf.GGUFReader(path)

    tokens = ours.metadata["tokenizer.ggml.tokens"]
    assert tokens.tolist() == strings_of(theirs.fields["tokenizer.ggml.tokens"])
    assert [(t.name, int(t.data_offset), int(t.n_bytes)) for t in theirs.tensors] == [
        (t.name, t.offset, t.size_bytes) for t in ours.tensors.values()
    ]
