"""Known keys: kinds, ranges, defaults, layers against tensors, rope (rows G3, G17, N7)."""

from __future__ import annotations

import dataclasses

import pytest

from gguf_runtime.errors import ModelError
from gguf_runtime.gguf import Keys
from tests.gguf_bytes import ARRAY, BOOL, F32, F64, I32, STRING, U32, U64, array, build, pair, tiny

NORM = bytes(128)


def model(*extra: bytes, layers: tuple[int, ...] = (0, 1), drop: str = "", n_layer: int = 2):
    """A llama of `layers`; `extra` pairs replace those of the same key."""
    pairs = {
        "general.architecture": pair("general.architecture", STRING, "llama"),
        "block_count": pair("llama.block_count", U32, n_layer),
        "embedding_length": pair("llama.embedding_length", U32, 64),
        "context_length": pair("llama.context_length", U32, 512),
        "head_count": pair("llama.attention.head_count", U32, 4),
        "feed_forward_length": pair("llama.feed_forward_length", U32, 96),
    }
    pairs.pop(drop, None)
    for raw in extra:
        key = raw[8 : 8 + int.from_bytes(raw[:8], "little")].decode()
        pairs[key.rpartition(".")[2]] = raw
    tensors = [(f"blk.{i}.attn_norm.weight", (32,), 0, NORM) for i in layers]
    return build(list(pairs.values()), tensors)


def test_defaults_are_filled_in(files):
    m = files.open(model()).manifest()

    assert (m.architecture, m.n_layer, m.n_ctx, m.n_embd) == ("llama", 2, 512, 64)
    assert m.n_head == m.n_head_kv == (4, 4)
    assert m.n_ff == (96, 96)
    assert m.head_dim == m.head_dim_v == m.rope.n_dims == 16
    assert (m.rope.base, m.rope.scaling, m.rope.factor) == (10_000.0, "none", 1.0)
    assert (m.window, m.vocabulary, m.n_expert) == (None, None, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.n_layer = 3


def test_keys_may_be_arrays_with_one_value_per_layer(files):
    heads = pair("llama.attention.head_count_kv", ARRAY, array(I32, [4, 0]))
    assert files.open(model(heads)).manifest().n_head_kv == (4, 0)
    wrong = pair("llama.attention.head_count_kv", ARRAY, array(I32, [4, 0, 4]))
    with pytest.raises(ModelError, match="wrong length"):
        files.open(model(wrong)).manifest()


@pytest.mark.parametrize("n_layer", [0, 1, 3, 600, 2**31, 2**32 - 1])
def test_a_layer_count_that_disagrees_with_the_tensors_is_one_plain_error(files, n_layer):
    with pytest.raises(ModelError) as caught:
        files.open(model(n_layer=n_layer)).manifest()
    assert "llama.block_count" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_negative_layer_count_is_out_of_range(files):
    with pytest.raises(ModelError, match="block_count is out of range"):
        files.open(model(pair("llama.block_count", I32, -2))).manifest()


def test_a_missing_layer_is_named(files):
    with pytest.raises(ModelError, match="none of layer 1"):
        files.open(model(layers=(0, 2), n_layer=3)).manifest()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (pair("llama.embedding_length", STRING, "64"), "embedding_length is of the wrong kind"),
        (pair("llama.embedding_length", F32, 64.0), "expected a whole number, got float32 64.0"),
        (pair("llama.embedding_length", BOOL, 1), "wrong kind"),
        (pair("llama.context_length", U64, 2**63), "context_length is out of range"),
        (pair("llama.rope.freq_base", F32, float("nan")), "freq_base is out of range"),
        (pair("llama.rope.freq_base", F64, float("inf")), "freq_base is out of range"),
        (pair("llama.rope.scaling.type", STRING, "dynamic"), "expected one of linear, longrope, none, yarn"),
        (pair("llama.attention.layer_norm_rms_epsilon", F32, -1.0), "expected a number from 0 to 1"),
    ],
)  # fmt: skip
def test_a_key_of_the_wrong_kind_or_range_is_named_with_both_sides(files, raw, says):
    with pytest.raises(ModelError) as caught:
        files.open(model(raw)).manifest()
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(files.folder))


def test_all_faulty_keys_are_named_at_once(files):
    raw = model(pair("llama.rope.freq_base", STRING, "x"), drop="context_length")
    with pytest.raises(ModelError) as caught:
        files.open(raw).manifest()
    assert "2 keys cannot be used" in str(caught.value)
    assert "llama.context_length is missing" in str(caught.value)
    assert "llama.rope.freq_base is of the wrong kind" in str(caught.value)


def test_rope_scaling_takes_effect_as_the_file_says(files):
    yarn = files.open(
        model(
            pair("llama.rope.scaling.type", STRING, "yarn"),
            pair("llama.rope.scaling.factor", F32, 4.0),
            pair("llama.rope.scaling.original_context_length", U32, 128),
        )
    ).manifest()
    assert (yarn.rope.scaling, yarn.rope.factor, yarn.rope.n_ctx) == ("yarn", 4.0, 128)
    old = files.open(model(pair("llama.rope.scale_linear", F32, 2.0))).manifest()
    assert (old.rope.scaling, old.rope.factor) == ("linear", 2.0)


def test_special_ids_outside_the_vocabulary_do_not_count(files):
    raw = model(
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, ["a", "b"])),
        pair("tokenizer.ggml.bos_token_id", U32, 1),
        pair("tokenizer.ggml.eos_token_id", U32, 2**32 - 1),
    )
    vocabulary = files.open(raw).manifest().vocabulary
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.n_tokens) == (1, None, 2)


def test_a_file_without_architecture_is_a_model_error(files):
    file = files.open(build([pair("general.name", STRING, "x")]))
    for read in (file.manifest, lambda: file.architecture):
        with pytest.raises(ModelError, match=r"general\.architecture is missing"):
            read()


def test_keys_read_all_kinds(files):
    keys = Keys(files.open(tiny()))
    assert keys.arch_int("block_count") == 1
    assert keys.arch_ints("feed_forward_length", 1) == (64,)
    assert keys.arch_floats("rope.freq_base", 3) == (500.0,) * 3
    assert keys.bool("tokenizer.ggml.add_bos_token") is True
    assert keys.str("general.name") == "tiny ü"
    assert keys.strings("tokenizer.ggml.tokens")[2] == "ü".encode()
    assert keys.arch_float("none", None) is None
    assert keys.arch_int("none", 7, low=10) == 7
    with pytest.raises(ModelError, match=r"llama\.none is missing"):
        keys.arch_int("none")
    with pytest.raises(ModelError, match="expected a number from 1 to 2"):
        keys.int("x.byte", low=1, high=2)
