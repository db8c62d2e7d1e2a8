"""Answers of models that reason and call tools: what is said, what was reasoned, and what it cost."""

from __future__ import annotations

import pytest

from gguf_runtime import Model
from gguf_runtime.engine.reply import Budget, Reader, Style, style_of
from gguf_runtime.errors import RequestError
from gguf_runtime.text.reply import FAMILIES
from tests.tiny import END, with_template

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}: "
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<eos>{% endfor %}"
    "{% if tools %}<bos>tools: {{ tools | tojson }}, in <tool_call></tool_call><eos>{% endif %}"
    "{% if add_generation_prompt %}<bos>assistant: "
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ALWAYS = (
    "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant: <think>\n{% endif %}{# </think> #}"
)
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
ANSWER = "<think>\nTwo and two.\n</think>\n\nFour."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reasoning")


@pytest.fixture(scope="module")
def thinker(folder):
    path = with_template(folder / "thinker.gguf", template=TEMPLATE)
    with Model(path, context=256, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def always(folder):
    path = with_template(folder / "always.gguf", template=ALWAYS)
    with Model(path, context=256, threads=1) as model:
        yield model


@pytest.fixture
def says(monkeypatch):
    """A function that has a model say a text, whatever its logits are, and then end its turn."""

    def prepare(model: Model, text: str, end: bool = True) -> list[int]:
        ids = model.tokenize(text)
        first: list[int] = []

        def pick_all(logits, picks):
            first.extend([n for _, _, n in picks][: 1 - len(first)])
            at = [n - first[0] for _, _, n in picks]
            return [ids[k] if k < len(ids) else END if end else ids[-1] for k in at]

        monkeypatch.setattr(model.backend, "pick_all", pick_all)
        return ids

    return prepare


def ask(model: Model, **options):
    return model.complete("2 + 2?", speculate=False, **options)


def test_reasoning_is_no_part_of_the_text(thinker, says):
    ids = says(thinker, ANSWER)

    out = ask(thinker)

    assert (out.text, out.reasoning, out.finish_reason) == ("Four.", "Two and two.", "stop")
    assert out.ids == ids
    inner = len(ids) - len(thinker.tokenize("<think>")) - len(thinker.tokenize("Four."))
    assert 0 < out.usage.reasoning <= inner
    assert out.usage.generated == len(ids)


def test_plain_iteration_gives_content_and_events_give_the_rest(thinker, says):
    says(thinker, ANSWER)
    assert "".join(thinker.stream("2 + 2?", speculate=False)) == "Four."
    says(thinker, ANSWER)
    events = list(thinker.stream("2 + 2?", events=True, speculate=False))
    assert [kind for kind, _ in events] == sorted(kind for kind, _ in events)
    assert "".join(v for kind, v in events if kind == "reasoning") == "Two and two."
    assert "".join(v for kind, v in events if kind == "text") == "Four."


def test_what_was_reasoned_when_a_stream_is_left_is_in_its_result(thinker, says):
    says(thinker, ANSWER)
    stream = thinker.stream("2 + 2?", events=True, speculate=False)
    first = next(stream)
    stream.close()
    assert (stream.result.reasoning, stream.result.text) == (first[1], "")
    assert stream.result.finish_reason == "interrupted"


def test_a_stop_string_ends_the_answer_but_not_the_reasoning(thinker, says):
    says(thinker, "<think>\nTwo. And two.\n</think>\n\nIt is four. Really.")
    out = ask(thinker, stop=["."])
    assert (out.reasoning, out.text, out.stop) == ("Two. And two.", "It is four", ".")


@pytest.mark.parametrize("budget", [0, 1, 4])
def test_reasoning_is_ended_when_its_budget_is_used_up(thinker, says, budget):
    """Here the model goes on as if nothing had happened, and writes its own end tag later."""
    says(thinker, "<think>\nTwo and two make four, I think.\n</think>\n\nFour.")

    out = ask(thinker, think_budget=budget)

    assert out.usage.reasoning == budget
    assert "<think>" not in out.text
    assert "</think>" not in out.text
    assert out.text.endswith("Four.")
    written = thinker.detokenize(out.ids)
    assert written.count("</think>") == 2
    assert (out.reasoning or "") == written[len("<think>") : written.index("</think>")].strip()


def test_a_prompt_that_ends_inside_the_reasoning_is_a_beginning_of_it(always, says):
    says(always, "Two and two.\n</think>\n\nFour.")
    out = ask(always)
    assert (out.reasoning, out.text) == ("Two and two.", "Four.")
    ids = says(always, "Two and two.\n</think>\n\nFour.")
    out = ask(always, think_budget=0)
    assert out.usage.reasoning == 0
    assert always.detokenize(out.ids).startswith("\n</think>\n\n")
    assert len(out.ids) > len(ids)


def test_a_budget_leaves_room_for_no_more_than_was_asked_for(thinker, always, says):
    for n in range(1, 12):
        says(thinker, ANSWER, end=False)
        out = ask(thinker, think_budget=0, max_tokens=n)
        assert (len(out.ids), out.finish_reason) == (n, "length")
        says(always, ANSWER, end=False)
        out = ask(always, think_budget=0, max_tokens=n)
        assert (len(out.ids), out.finish_reason) == (n, "length")


def test_a_budget_that_is_not_reached_changes_nothing(thinker, says):
    says(thinker, ANSWER)
    plain = ask(thinker)
    says(thinker, ANSWER)
    assert ask(thinker, think_budget=100).ids == plain.ids


def test_think_false_is_told_to_the_template(thinker, always):
    ids = [thinker.prepare("Hi", think=t).job.ids for t in (None, True, False)]
    assert ids[0] == ids[1]
    assert thinker.detokenize(ids[2][len(ids[0]) :]) == "<think>\n\n</think>\n\n"

    generation = always.prepare("Hi", think=False)
    assert always.detokenize(generation.job.ids).endswith("<think>\n\n</think>\n\n")
    assert [n.code for n in generation.completion.notices] == ["no-think-switch"]


def test_asking_a_model_to_reason_that_cannot_is_said(folder):
    path = with_template(folder / "plain.gguf")
    with Model(path, context=256, threads=1) as model:
        for options in ({"think": True}, {"think": False}, {"think_budget": 3}):
            out = model.complete("Hi", max_tokens=2, **options)
            assert [n.code for n in out.notices] == ["no-reasoning"]
        out = model.complete("Hi", max_tokens=2, raw=True, think=True)
        assert [n.code for n in out.notices] == ["raw"]
        assert model.prepare("Hi").job.request.style is None


def test_variables_reach_the_template(thinker):
    given = thinker.prepare("Hi", template_args={"enable_thinking": False})
    assert thinker.detokenize(given.job.ids).endswith("</think>\n\n")
    with pytest.raises(RequestError, match="template_args cannot set messages"):
        thinker.prepare("Hi", template_args={"messages": []})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"think": "on"}, "think is True, False or None"),
        ({"think_budget": -1}, "think_budget is outside its range"),
        ({"template_args": [1]}, "template_args are names and values"),
        ({"tools": {"name": "f"}}, "tools are a list"),
        ({"tools": ["f"]}, "tool 0 is no function and no schema"),
        ({"tools": [{"name": "f", "parameters": {1, 2}}]}, "tool 0 is no JSON"),
    ],
)
def test_wrong_options_of_a_turn_are_refused_by_name(thinker, options, message):
    with pytest.raises(RequestError, match=message):
        thinker.complete("Hi", **options)


def test_a_call_is_a_field_and_the_reason_why_it_ended(thinker, says):
    says(thinker, 'Well.\n<tool_call>\n{"name": "f", "arguments": {"x": [1]}}\n</tool_call>')
    out = ask(thinker, tools=TOOLS)
    assert (out.text, out.finish_reason) == ("Well.", "tool_calls")
    assert [(c["name"], c["arguments"]) for c in out.tool_calls] == [("f", {"x": [1]})]
    assert len(out.tool_calls[0]["id"]) == 9
    assert out.as_dict()["tool_calls"] == out.tool_calls


def test_a_call_that_cannot_be_read_is_text_and_a_notice(thinker, says):
    raw = 'Well. <tool_call>\n{"name": "f", "argum'
    says(thinker, raw)
    out = ask(thinker, tools=TOOLS)
    assert (out.text, out.tool_calls, out.finish_reason) == (raw, [], "stop")
    assert [n.code for n in out.notices] == ["unreadable-call"]


def test_without_tools_a_call_is_text(thinker, says):
    raw = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    says(thinker, raw)
    out = ask(thinker)
    assert (out.text, out.tool_calls, out.finish_reason) == (raw, [], "stop")


def test_a_call_in_an_answer_that_was_cut_counts_and_the_length_is_the_reason(thinker, says):
    ids = says(thinker, '<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    out = ask(thinker, tools=TOOLS, max_tokens=len(ids))
    assert (len(out.tool_calls), out.finish_reason) == (1, "length")


class Tags:
    """A tokenizer of characters, whose tags are tokens from 300 on."""

    def __init__(self, *tags: str) -> None:
        self.tags = tags

    def token(self, text: str) -> int | None:
        return 300 + self.tags.index(text) if text in self.tags else None

    def piece(self, i: int, special: bool = False) -> bytes:
        if i >= 300:
            return self.tags[i - 300].encode() if special else b""
        return bytes([i])

    def encode_segments(self, segments):
        return [b for text, _ in segments for b in text.encode()]


def events_of(reader: Reader, *parts: str | int) -> tuple[str, str]:
    ids = [i for part in parts for i in ([part] if isinstance(part, int) else part.encode())]
    events = [e for i in ids for e in reader.feed(i)] + reader.flush()
    kinds = {k: "".join(v for kind, v in events if kind == k) for k in ("text", "reasoning")}
    return kinds["text"], kinds["reasoning"]


def test_tags_that_are_tokens_are_told_from_text_that_spells_them():
    tokenizer = Tags("<think>", "</think>")
    style = style_of(tokenizer, FAMILIES["think"], "")
    assert style is not None

    got = events_of(Reader(tokenizer, (), style), 300, "a </think> b", 301, " c <think>", 301, "!")

    assert got == ("c <think>!", "a </think> b")


def test_a_character_that_a_tag_cuts_is_shown_as_broken_and_the_tag_counts():
    tokenizer = Tags("<think>", "</think>")
    style = style_of(tokenizer, FAMILIES["think"], "<think>\n")
    reader = Reader(tokenizer, (), style)
    events = reader.feed(0xF0) + reader.feed(301) + reader.feed(ord("x")) + reader.flush()
    assert events == [("reasoning", "\ufffd"), ("text", "x")]


def test_a_model_that_neither_reasons_nor_has_tools_has_no_style():
    tokenizer = Tags()
    assert style_of(tokenizer, FAMILIES["llama3"], "") is None
    assert style_of(tokenizer, FAMILIES["llama3"], "", TOOLS) is not None


def test_the_end_that_a_budget_forces_depends_on_the_ids_alone():
    tokenizer = Tags("<think>", "</think>")
    style = Style(FAMILIES["qwen_hermes"], budget=3, forced=(10, 301, 10), tags={})
    whole = [300, *b"abcd", 301, *b"x"]
    for n in range(len(whole)):
        once = Budget(style, tokenizer).forced(whole[:n])
        budget = Budget(style, tokenizer)
        for k in range(n + 1):
            step = budget.forced(whole[:k])
        assert once == step
        assert once == ([10, 301, 10][max(0, n - 4) :] if n >= 4 and n < 7 else [])
