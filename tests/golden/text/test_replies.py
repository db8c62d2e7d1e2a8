"""Raw replies of 15 families give content, reasoning and calls as stored (tests/data/text/ORIGIN.md)."""

from __future__ import annotations

import json

import pytest

from gguf_runtime.text import ReplyParser

FAMILIES = {
    "command_r": 7,
    "deepseek": 11,
    "functionary": 8,
    "gemma": 9,
    "glm": 6,
    "gpt_oss": 11,
    "granite": 7,
    "kimi": 5,
    "llama3": 11,
    "mistral": 12,
    "pythonic": 6,
    "qwen3_coder": 10,
    "qwen_hermes": 22,
    "think": 14,
    "xml_invoke": 5,
}


def parser(case: dict, template: str, tools: list) -> ReplyParser:
    return ReplyParser(
        template,
        tools if case["tools"] else None,
        case.get("thinking", True),
        case.get("starts_in_reasoning", False),
    )


def check(case: dict, template: str, tools: list) -> None:
    reading = parser(case, template, tools)
    reading.feed(case["text"])
    reply, expected = reading.finish(), case["expected"]
    found = (reply.content.strip(), reply.reasoning.strip(), reply.tool_calls)
    wanted = (expected["content"].strip(), expected["reasoning"].strip(), expected["tool_calls"])
    assert found == wanted, case["name"]


def joined(events: list) -> tuple:
    said = "".join(v for kind, v in events if kind == "text")
    thought = "".join(v for kind, v in events if kind == "reasoning")
    return said, thought, [v for kind, v in events if kind == "tool"]


@pytest.mark.parametrize("family", FAMILIES)
def test_replies_are_told_apart_by_the_name_of_the_family(references, family):
    cases = references["replies"]["families"][family]
    assert len(cases) == FAMILIES[family]
    for case in cases:
        check(case, family, references["replies"]["tools"])


def test_replies_are_told_apart_by_the_models_template(golden, references):
    sources = {}
    for cases in references["replies"]["families"].values():
        for case in cases:
            name = case["template"]
            if name not in sources:
                stored = json.loads((golden / f"text/templates/{name}.json").read_text())
                sources[name] = stored["template"]
            check(case, sources[name], references["replies"]["tools"])
    assert len(sources) == 28


@pytest.mark.parametrize("family", FAMILIES)
def test_what_came_before_a_cut_stands_whatever_comes_after_it(references, family):
    tools = references["replies"]["tools"]
    for case in references["replies"]["families"][family]:
        text = case["text"]
        whole = parser(case, family, tools)
        expected = joined(whole.feed(text) + whole.close())
        single = parser(case, family, tools)
        events = []
        for c in text:
            events += single.feed(c)
            said, thought, calls = joined(events)
            assert expected[0].startswith(said)
            assert expected[1].startswith(thought)
            assert expected[2][: len(calls)] == calls
        assert joined(events + single.close()) == expected, case["name"]
        for cut in range(len(text) + 1):
            two = parser(case, family, tools)
            events = two.feed(text[:cut])
            assert joined(events + two.feed(text[cut:]) + two.close()) == expected, cut
