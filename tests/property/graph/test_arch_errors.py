"""What a file may lack or hold too much of, and what its keys may not say: one clear ModelError."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gguf_runtime.arch import ARCHITECTURES, load
from gguf_runtime.errors import ModelError
from gguf_runtime.gguf import GGUFFile, open_file

ARCHS = Path(__file__).parents[2] / "data" / "archs"


class Changed(dict):
    """Metadata with some keys replaced."""

    def kind(self, key: str) -> str:
        return type(self[key]).__name__


def changed(name: str, **keys: object) -> GGUFFile:
    file = open_file(ARCHS / f"{name}.gguf")
    file.tensors = dict(file.tensors)
    prefix = f"{file.architecture}."
    metadata = Changed(file.metadata)
    metadata.update({prefix + key.replace("__", "."): value for key, value in keys.items()})
    file.metadata = metadata
    return file


def message(file: GGUFFile) -> str:
    with pytest.raises(ModelError) as caught:
        load(file)
    return str(caught.value)


def test_missing_extra_and_misshapen_tensors_are_named_in_one_error():
    file = changed("qwen3")
    del file.tensors["blk.1.attn_q_norm.weight"]
    del file.tensors["output_norm.weight"]
    file.tensors["blk.0.attn_sinks.weight"] = file.tensors["blk.0.attn_q_norm.weight"]
    up = file.tensors["blk.0.ffn_up.weight"]
    file.tensors["blk.0.ffn_up.weight"] = replace(up, shape=(up.shape[0], up.shape[1] - 1))
    file.tensors["blk.0.ffn_down.weight"] = replace(
        file.tensors["blk.0.ffn_down.weight"], type_id=23
    )

    text = message(file)

    for name in ("blk.1.attn_q_norm.weight", "output_norm.weight", "blk.0.attn_sinks.weight"):
        assert name in text
    assert "blk.0.ffn_up.weight has shape (48, 71), expected (48, 72)" in text
    assert "blk.0.ffn_down.weight is IQ4_XS, a type without kernels" in text


def test_a_file_with_thousands_of_faults_still_gives_a_readable_error():
    assert len(message(changed("qwen3", block_count=4000))) < 5000


def test_an_unknown_architecture_is_told_which_ones_there_are():
    file = changed("qwen3")
    file.metadata["general.architecture"] = "qwen9"

    text = message(file)

    assert "architecture 'qwen9' not supported (supported: " in text
    assert all(name in text for name in ARCHITECTURES)


def test_a_missing_head_is_the_embedding():
    file = changed("qwen3")
    file.tensors.pop("output.weight", None)

    graph = load(file).graph

    assert graph.head.weight.tensor == "token_embd.weight"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rope__scaling__type": "longrope"}, "longrope"),
        ({"rope__scaling__alpha": 1000.0}, "rope.scaling.alpha"),
        ({"attention__head_count_kv": 4}, "head_count_kv"),
        ({"attention__value_length": 8}, "value_length"),
        ({"rope__dimension_count": 7}, "rope.dimension_count"),
        ({"expert_count": 8}, "8 experts"),
        ({"embedding_length": 0}, "embedding_length"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon"),
    ],
)
def test_a_key_that_cannot_be_followed_is_refused_by_name(keys: dict[str, object], words: str):
    assert words in message(changed("qwen3", **keys))
