"""Words equal the splits of the published regular expressions (tests/data/text/ORIGIN.md)."""

from __future__ import annotations

import json

import pytest

from gguf_runtime.errors import ModelError
from gguf_runtime.text.tokenizer import pretokenizers, published

OTHER_KINDS = ("gemma4", "whitespace")  # of models whose tokenizer is no byte-level BPE
SETS = {
    "default": "default",
    "falcon": "falcon",
    "gpt2": "gpt-2",
    "llama3": "llama-bpe",
    "qwen35": "qwen35",
    "stablelm2": "qwen2",
    "starcoder": "smollm",
}


@pytest.mark.parametrize("name", SETS)
def test_words_equal_the_published_splits(references, name):
    pre = pretokenizers.get(SETS[name])
    inputs = references["inputs"]
    splits = references["splits"][name]

    assert len(splits) == 498
    for i, lengths in zip(references["split_inputs"], splits, strict=True):
        words = pre.words(inputs[i]["text"])
        assert "".join(words) == inputs[i]["text"]
        assert [len(word) for word in words] == lengths, inputs[i]["text"]


def test_words_of_every_stored_set_equal_the_published_splits_or_llama_cpps(golden, references):
    folder = golden / "text/tokenizer"
    inputs, checked = references["inputs"], []
    for facts in json.loads((folder / "pretokenizers.json").read_text())["sets"]:
        stored = json.loads((folder / f"pretok/{facts['set']}.json").read_text())
        assert set(facts["names"]) <= set(pretokenizers.names()) or facts["set"] in OTHER_KINDS
        if facts["set"] in OTHER_KINDS:
            continue
        for as_published in (True, False):
            differs = stored.get("reference_differs", {}) if as_published else {}
            pre = pretokenizers.get(facts["names"][0], as_published)
            for i, lengths in zip(references["split_inputs"], stored["splits"], strict=True):
                wanted = [n for n in differs.get(str(i), lengths) if n]  # an empty word has no ids
                words = pre.words(inputs[i]["text"])
                assert [len(word) for word in words] == wanted, (facts["set"], inputs[i]["text"])
                assert "".join(words) == inputs[i]["text"]
        checked.append(facts["set"])
    assert len(checked) == 29


@pytest.mark.parametrize("name", sorted(published.NAMES))
def test_expressions_cut_long_runs_in_words_that_join_to_the_text(name):
    pre = pretokenizers.get(name)
    for unit in (
        "a",
        "A",
        "aA",
        " ",
        "\n",
        " \n",
        "1",
        "字",
        "e\u0301",
        "'s",
        "!",
        "x\r\n",
        "\u0661",
    ):
        text = unit * 20_000
        assert "".join(pre.words(text)) == text


@pytest.mark.parametrize("pre", sorted(pretokenizers.PRE_TOKENIZERS))
def test_digits_are_grouped_by_three_or_one_or_not_at_all(pre):
    for n in range(1, 13):
        words = pretokenizers.get(pre).words("8" * n)

        threes = ["8" * min(3, n - i) for i in range(0, n, 3)]
        assert words in (["8"] * n, threes, ["8" * n])


def test_a_file_without_the_key_means_default():
    assert pretokenizers.get(None) is pretokenizers.get("default")


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(ModelError) as caught:
        pretokenizers.get("tekken2")

    text = str(caught.value)
    assert 'unknown pre-tokenizer "tekken2"' in text
    assert "llama-bpe" in text
    assert "pre=NAME" in text
