"""Schemas and grammars against the truth (jsonschema) and llama.cpp's masks."""

import hashlib
import json
import lzma

import jsonschema
import numpy as np
import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Constraint, Tokenizer

# Schemas that no decoder can enforce token by token; each is refused by its keyword.
REFUSED = {
    "property_names": "propertyNames",
    "unique_items": "uniqueItems",
    "contains": "contains",
    "format_unknown": "my-format",
    "oneof_overlap": "oneOf",
    "not": "not",
}
ESCAPES = {'"\\u00e9"', '"\\ud83d\\ude00"', '"\\/\\b\\f\\r"'}  # valid, and never written


@pytest.fixture(scope="module")
def folder(golden):
    return golden / "text" / "grammar"


def test_no_invalid_text_is_accepted_and_compact_ones_are(folder):
    refused, strings = [], 0
    for case in json.loads((folder / "json_schema.json").read_text()):
        if case["name"] in REFUSED:
            with pytest.raises(RequestError, match=REFUSED[case["name"]]):
                Constraint.from_schema(case["schema"])
            refused.append(case["name"])
            continue
        constraint = Constraint.from_schema(case["schema"])
        jsonschema.validate(json.loads(constraint.shortest), case["schema"])
        for s in case["strings"]:
            text, valid = s["text"], s["valid"]
            if valid and (s["kind"] == "other_key_order" or text in ESCAPES):
                continue  # may be refused
            assert constraint.accepts(text) is valid, (case["name"], text)
            strings += 1
    assert sorted(refused) == sorted(REFUSED)
    assert strings >= 1000


def test_grammars_accept_their_sentences_and_wrong_ones_are_refused(folder):
    strings = refused = 0
    for case in json.loads((folder / "gbnf.json").read_text()):
        if not case["valid_grammar"]:
            with pytest.raises(RequestError):
                Constraint.from_gbnf(case["grammar"])
            refused += 1
            continue
        constraint = Constraint.from_gbnf(case["grammar"])
        for s in case["strings"]:
            assert constraint.accepts(s["text"]) is s["accept"], (case["name"], s["text"])
            strings += 1
        for s in case.get("prefixes", []):
            assert constraint.can_continue(s["text"]) is s["can_continue"], case["name"]
        assert constraint.accepts(constraint.shortest.decode()), case["name"]
    assert (strings, refused) == (265, 20)


@pytest.fixture(scope="module")
def tokenizer_of(golden, tmp_path_factory):
    known = {}

    def find(name):
        if name not in known:
            path = tmp_path_factory.mktemp("vocab") / f"{name}.gguf"
            packed = golden / "vocabs" / f"{name}.gguf.xz"
            path.write_bytes(lzma.decompress(packed.read_bytes()))
            known[name] = Tokenizer.from_gguf(path, compat="llama.cpp")
        return known[name]

    return find


def continues(constraint, prefix, piece):
    """llama.cpp's rule for control tokens: they stand for their printed text."""
    return bool(piece) and piece[0] != 0 and constraint.can_continue(prefix + piece.decode())


def test_masks_are_those_of_llama_cpp(folder, tokenizer_of):
    grammars = json.loads((folder / "mask_grammars.json").read_text())["grammars"]
    equal = done = 0
    for case in json.loads((folder / "token_masks.json").read_text()):
        tokenizer = tokenizer_of(case["vocab"])
        constraint = Constraint.from_gbnf(grammars[case["grammar"]])

        bits = constraint.mask(tokenizer, case["prefix_ids"])

        got = np.unpackbits(bits, bitorder="little")[: tokenizer.n_vocab]
        ends = list(tokenizer.eos_ids)
        assert bool(got[ends].all()) is bool(got[ends].any()) is case["end_allowed"]
        named = tokenizer.token("</s>")  # of any type, it ends a text there
        if named is not None and named not in ends:
            got[named] = case["end_allowed"]
            ends.append(named)
        for i in tokenizer.control_ids - set(ends):
            got[i] = continues(constraint, case["prefix"], tokenizer.piece(i, special=True))
        done += 1
        digest = hashlib.sha256(np.packbits(got, bitorder="little").tobytes()).hexdigest()
        if digest == case["sha256"]:
            equal += 1
            continue
        # What is left are bytes that begin no UTF-8 text (F5 to FF), which llama.cpp lets through.
        want = set(case["first"])
        odd = {
            i for i in range(tokenizer.n_vocab) if tokenizer.piece(i, special=True)[:1] >= b"\xf5"
        }
        first = set(np.flatnonzero(got)[: len(case["first"])].tolist())
        assert (want - odd) <= first | odd, case
        got[list(odd)] = 1
        assert int(got.sum()) == case["n_allowed"], case
    assert done == 153
    assert equal >= 130
