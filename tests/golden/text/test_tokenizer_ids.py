"""Ids, pieces and facts equal llama.cpp's and the original tokenizers' (tests/data/text/ORIGIN.md)."""

from __future__ import annotations

import hashlib
import struct
import unicodedata

import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Tokenizer

VOCABULARIES = [
    "baichuan",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gpt-2",
    "gpt-2@smollm",
    "llama-bpe",
    "llama-bpe@gpt-4o",
    "llama-bpe@tekken",
    "llama-spm",
    "mpt",
    "mpt@default",
    "qwen2",
    "qwen2@deepseek-v3",
    "qwen2@qwen35",
    "refact",
    "starcoder",
]
MODELS = ["smollm2", "gemma-3-270m"]
COMPAT = ["published", "llama.cpp"]


@pytest.fixture(params=[*VOCABULARIES, *MODELS], scope="module")
def case(request):
    """(name, expected results, function from compat to tokenizer)"""
    name = request.param
    if name in MODELS:
        find = request.getfixturevalue("model_tokenizer")
        expected = request.getfixturevalue("references")["models"][name]
        return name, expected, lambda compat: find(name, compat)
    find = request.getfixturevalue("vocabulary")
    base, _, pre = name.partition("@")
    return (
        name,
        request.getfixturevalue("stored")(name),
        lambda compat: find(base, pre or None, compat),
    )


@pytest.mark.parametrize("compat", COMPAT)
@pytest.mark.parametrize("name", ["bert-bge", "nomic-bert-moe-trim"])
def test_ids_of_wordpiece_and_unigram_equal_the_stored_ones(
    vocabulary, stored, references, name, compat
):
    facts, tokenizer = stored(name), vocabulary(name, None, compat)
    differs = facts["reference"]["differs"] if compat == "published" else {}

    def expected(i):
        return differs.get(str(i), facts["ids"][i])

    assert differences(tokenizer, references["inputs"], expected) == []
    around = facts["add_special"]
    ids = tokenizer.encode("Hello there")
    whole = [*around["prefix"], *ids, *around["suffix"]]
    assert tokenizer.encode("Hello there", add_special=True) == whole
    for own in facts["extra"]:
        if compat == "llama.cpp":
            assert tokenizer.encode(own["text"]) == own["ids"]


def differences(tokenizer, inputs, expected, **options) -> list[int]:
    return [
        x["i"]
        for x in inputs
        if "text" in x and tokenizer.encode(x["text"], **options) != expected(x["i"])
    ]


def test_ids_equal_the_original_tokenizers(case, references):
    _, stored, find = case
    tokenizer = find("published")
    reference = stored.get("reference") or {"compared_with": "ids", "differs": {}}
    parse = reference["compared_with"] == "ids_parse"

    def expected(i):
        by_llama_cpp = stored["ids_parse"].get(str(i)) if parse else None
        return reference["differs"].get(str(i), by_llama_cpp or stored["ids"][i])

    wrong = differences(tokenizer, references["inputs"], expected, parse_special=parse)

    assert sum("text" in x for x in references["inputs"]) == 798
    assert wrong == []


@pytest.mark.parametrize("parse", [False, True])
def test_ids_equal_llama_cpp_when_that_is_asked_for(case, references, parse):
    _, stored, find = case
    tokenizer = find("llama.cpp")

    def expected(i):
        return (stored["ids_parse"].get(str(i)) if parse else None) or stored["ids"][i]

    assert differences(tokenizer, references["inputs"], expected, parse_special=parse) == []
    for own in stored["extra"]:
        expected_ids = own.get("ids_parse", own["ids"]) if parse else own["ids"]
        assert tokenizer.encode(own["text"], parse_special=parse) == expected_ids


@pytest.mark.parametrize("compat", COMPAT)
def test_facts_equal_llama_cpp(case, compat):
    _, stored, find = case
    facts, tokenizer = stored["facts"], find(compat)

    assert tokenizer.n_vocab == facts["n_tokens"]
    assert tokenizer.bos_id == facts["bos"]
    assert tokenizer.add_bos == facts["add_bos"]
    assert tokenizer.add_eos == facts["add_eos"]
    assert {facts["eos"], facts["eot"]} - {-1} <= set(tokenizer.eos_ids) <= set(facts["eog"])


def test_pieces_of_all_ids_equal_llama_cpp(case):
    _, stored, find = case
    tokenizer = find("llama.cpp")

    digests = {True: hashlib.sha256(), False: hashlib.sha256()}
    for i in range(tokenizer.n_vocab):
        for special, digest in digests.items():
            piece = tokenizer.piece(i, special)
            digest.update(struct.pack("<I", len(piece)) + piece)

    for special, digest in digests.items():
        assert digest.hexdigest() == stored["pieces_sha256"][f"special_{str(special).lower()}"]


def test_bos_and_eos_are_added_as_the_file_says(case, references):
    _, stored, find = case
    tokenizer = find("published")
    bos = [stored["facts"]["bos"]] if stored["facts"]["add_bos"] else []

    for text in ("", "Hello", " a <b>"):
        assert tokenizer.encode(text, add_special=True) == bos + tokenizer.encode(text)


def test_bytes_come_back_as_they_went_in_or_are_refused(case, raw_inputs):
    name, stored, find = case
    tokenizer = find("published")
    nfc = name.split("@")[-1] in ("mpt", "qwen2", "qwen35")
    spm = stored["facts"]["type"] == "spm"
    missing = letters_without_token(tokenizer)
    refused = 0

    for raw in raw_inputs:
        if not is_utf8(raw):
            try:
                assert tokenizer.decode(tokenizer.encode(raw)) == raw
            except RequestError:
                refused += 1
            continue
        # Three losses are the original tokenizers' own.
        text = unicodedata.normalize("NFC", raw.decode()) if nfc else raw.decode()
        text = text.replace("\u2581", " ") if spm else text
        kept = bytes(b for b in text.encode() if b not in missing)
        assert tokenizer.decode(tokenizer.encode(raw)) == kept

    assert refused < 25


def letters_without_token(tokenizer) -> set[int]:
    """Bytes below 128 that the vocabulary cannot spell; they are dropped."""
    return {b for b in range(128) if not tokenizer.encode(bytes([b]))}


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_tokenizer_opens_from_a_path(model_path):
    tokenizer = Tokenizer.from_gguf(str(model_path("smollm2")))

    assert tokenizer.decode(tokenizer.encode("Hello")) == b"Hello"


def test_a_token_is_found_by_its_name_whatever_its_type(model_tokenizer):
    tokenizer = model_tokenizer("smollm2")
    for i in (1, 2, 100, 5000):
        name = tokenizer.piece(i, special=True).decode()
        if " " not in name:  # a name is spelled as the file spells it
            assert tokenizer.token(name) == i
    assert tokenizer.token("<|im_end|>") == 2
    assert tokenizer.token("<|no such token|>") is None
