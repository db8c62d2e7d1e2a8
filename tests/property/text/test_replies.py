"""Laws of reading replies: nothing is lost, nothing is shown too early, time is linear."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_runtime.errors import RequestError
from gguf_runtime.text import ReplyParser
from gguf_runtime.text.reply import FAMILIES
from gguf_runtime.text.reply.parser import MARK

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}, "s": {}},
            },
        },
    }
]
SCRAPS = ["<", "{", '"', "a", " ", "\n", "}", "[", "]", ":", ",", "\\", "f", "1", "</parameter>"]


def read(parser: ReplyParser, *pieces: str) -> tuple[str, str, list]:
    events = [e for piece in pieces for e in parser.feed(piece)] + parser.close()
    said = "".join(v for kind, v in events if kind == "text")
    thought = "".join(v for kind, v in events if kind == "reasoning")
    return said, thought, [v for kind, v in events if kind == "tool"]


def bare(text: str) -> str:
    return "".join(text.split())


@given(family=st.sampled_from(sorted(FAMILIES)), data=st.data())
@settings(max_examples=300, deadline=None)
def test_random_scraps_of_tags_read_the_same_however_they_are_cut(family, data):
    words = [*FAMILIES[family].switches, "</tool_call>", '{"name": "f", "arguments": {}}', *SCRAPS]
    pieces = data.draw(st.lists(st.sampled_from(words), max_size=12))
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert read(ReplyParser(family, TOOLS), *parts) == read(ReplyParser(family, TOOLS), text)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gpt_oss", "functionary"}))
def test_without_tools_and_tags_a_reply_is_its_own_content(family):
    text = "\n  Let f(x) = [1, 2] {a} <b>\n\nand so on. \n"
    for piece in (1, 7, len(text)):
        parts = [text[i : i + piece] for i in range(0, len(text), piece)]
        assert read(ReplyParser(family), *parts) == (text, "", [])
        assert read(ReplyParser(family, TOOLS), *parts) == (text, "", [])


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gpt_oss"}))
def test_no_beginning_of_a_call_is_lost_when_the_reply_ends(family):
    for word in FAMILIES[family].calls:
        for text in (word, word[:-1], f"Well {word} x", word + '{"name": "f", "argum'):
            said, thought, calls = read(ReplyParser(family, TOOLS), text)
            assert (bare(said), thought, calls) == (bare(text), "", [])


def test_a_word_of_a_tag_in_an_answer_is_text_and_a_token_of_it_is_a_tag():
    text = "The tag <think> and </think> are words."
    assert read(ReplyParser("qwen_hermes"), text) == (text, "", [])

    parser = ReplyParser("qwen_hermes", marked=["<think>", "</think>"])
    pieces = ["Say ", MARK + "<think>", "hm", MARK + "</think>", " done", MARK + "</think>", "."]
    assert read(parser, *pieces) == ("Say  done.", "hm", [])
    parser = ReplyParser("qwen_hermes", marked=["<think>", "</think>"])
    assert read(parser, "<think>\nx\n</think>") == ("<think>\nx\n</think>", "", [])


def test_several_blocks_of_reasoning_are_parted_by_an_empty_line():
    text = "<think>a</think>\n<think>\nb\n</think>\n\nc"
    assert read(ReplyParser("think"), text) == ("c", "a\n\nb", [])


def test_an_end_tag_after_reasoning_was_ended_by_force_is_not_shown():
    parser = ReplyParser("qwen_hermes", starts_in_reasoning=True)
    events = parser.feed("I wonder\n</think>\n\n")
    parser.forced = True
    events += parser.feed("and go on. </think>\n\nFour.") + parser.close()
    assert events[0] == ("reasoning", "I wonder")
    assert "".join(v for kind, v in events if kind == "text").split() == [
        "and",
        "go",
        "on.",
        "Four.",
    ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": "{\\"n\\": 1}"}', {"n": 1}),
        ('{"name": "f", "arguments": {"s": "a\nb"}}', {"s": "a\nb"}),
        ('{"name": "f"}', {}),
        ('{"function": {"name": "f", "arguments": {"n": -1.5e3}}}', {"n": -1500.0}),
        ("<function=f><parameter=ok>True</parameter></function>", {"ok": True}),
        ("<function=f><parameter=n>many</parameter></function>", {"n": "many"}),
    ],
)
def test_calls_in_free_spelling_are_read(text, arguments):
    said, _, calls = read(ReplyParser("qwen3_coder", TOOLS), f"<tool_call>{text}</tool_call>")
    assert (said, [dict(c) for c in calls]) == ("", [{"name": "f", "arguments": arguments}])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "arguments": {"s": "\\ud83d"}}',
        '{"name": "f", "arguments": {"n": NaN}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": 3, "arguments": {}}',
        '{"name": "f", "arguments": {"n": ' + "1" * 5000 + "}}",
        '{"name": "f", "arguments": {"n": 01}}',
        '{"name": "f" "arguments": {}}',
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_calls_that_nobody_could_pass_on_stay_text(text):
    parser = ReplyParser("qwen_hermes", TOOLS)
    raw = f"<tool_call>{text}</tool_call>"
    assert read(parser, raw) == (raw, "", [])
    assert parser.unreadable == 1


def test_arguments_equal_what_json_says_of_them():
    value = {"s": 'é"\\\n\t😀', "list": [1, -2.5, 1e9, True, None, {"x": []}], "": {}}
    text = json.dumps({"name": "f", "arguments": value}, indent=2)
    _, _, calls = read(ReplyParser("qwen_hermes", TOOLS), *f"<tool_call>{text}</tool_call>")
    assert calls[0].arguments == value


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_long_reply_is_not_read_again_for_every_piece(family):
    """Looked at by the characters that searches pass over, not by the clock."""
    parser = ReplyParser(family, TOOLS, starts_in_reasoning=FAMILIES[family].reasons)
    for _ in range(2000):
        parser.feed("word < [ { ")
    assert len(parser.source.text) < 2000 or family == "functionary"


def test_a_name_that_is_no_family_is_refused_with_the_names_that_are():
    with pytest.raises(RequestError, match='no family of replies is called "qwen"') as caught:
        ReplyParser("qwen")
    assert "qwen_hermes" in str(caught.value)
