"""Streams and stop strings equal the stored cases (tests/data/text/ORIGIN.md)."""

from __future__ import annotations

import pytest

from gguf_runtime.text import Detokenizer, StopMatcher

VOCABULARIES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"]


def test_characters_are_shown_as_soon_as_they_are_complete(references):
    for case in references["detok"]:
        stream = Detokenizer(tokenizer=None)

        shown = [stream.feed_bytes(bytes.fromhex(piece)) for piece in case["pieces_hex"]]

        assert shown == case["shown"], case
        assert stream.flush() == case["flush"], case


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_stream_of_ids_equals_the_stored_one_and_the_whole_decoded(
    references, vocabulary, name
):
    # phi-3's file calls `</s>` user-defined; the case follows llama.cpp, for which it is control.
    tokenizer = vocabulary(name, compat="llama.cpp" if name == "phi-3" else "published")
    cases = [case for case in references["detok"] if case["vocab"] == name]
    assert len(cases) == 28

    for case in cases:
        stream = Detokenizer(tokenizer)
        assert [tokenizer.piece(i).hex() for i in case["ids"]] == case["pieces_hex"]
        assert [stream.feed(i) for i in case["ids"]] == case["shown"]
        assert stream.flush() == case["flush"]
        assert tokenizer.decode(case["ids"], whole=False).decode("utf-8", "replace") == case["text"]
        if "pieces_special_hex" in case:
            special = [tokenizer.piece(i, special=True).hex() for i in case["ids"]]
            assert special == case["pieces_special_hex"]


def test_stop_strings_end_the_stream_where_the_stored_cases_say(references):
    for case in references["stop"]:
        matcher = StopMatcher(case["stops"])
        shown = []

        for piece in case["pieces"]:
            shown.append(matcher.feed(piece))
            if matcher.found is not None:
                break

        assert shown == case["shown"], case
        assert matcher.flush() == case["flush"], case
        assert matcher.found == case["stop_string"], case
