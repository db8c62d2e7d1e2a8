"""Tools: schemas of functions, calls that are checked, and turns that call until they answer."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from gguf_runtime import Model
from gguf_runtime.engine.tools import MAX_RESULT, Toolbox, function_schema, tools_of
from gguf_runtime.errors import RequestError
from tests.tiny import END, with_template

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}"
    "]{% endfor %}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant: {% endif %}{# <tool_call> #}"
)


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "FR"


def weather(city: str, unit: Literal["C", "F"] = "C", days: int = 1) -> str:
    """Tell the weather.

    Of a city, today.

    Args:
        city: its name,
            in English
        unit: of the temperature

    Returns:
        A sentence.
    """
    return f"{city}: 18 {unit}, {days}"


def test_a_schema_has_the_name_the_docstring_and_the_types_of_a_function():
    assert function_schema(weather) == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.\n\nOf a city, today.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "its name, in English"},
                    "unit": {
                        "enum": ["C", "F"],
                        "description": "of the temperature",
                        "default": "C",
                    },
                    "days": {"type": "integer", "default": 1},
                },
                "required": ["city"],
            },
        },
    }


def test_schemas_of_other_types_and_other_docstrings():
    def f(
        a: list[str], b: dict[str, float], c: Annotated[int, "how many"], d: Unit, e: Place, g=None
    ):
        """Do it.

        :param a: the first
        :param int c: more
            of it
        :returns: nothing
        """

    facts = function_schema(f)["function"]
    properties = facts["parameters"]["properties"]
    assert facts["description"] == "Do it."
    assert properties["a"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": "the first",
    }
    assert properties["b"]["additionalProperties"] == {"type": "number"}
    assert properties["c"] == {"type": "integer", "description": "more of it"}
    assert properties["d"] == {"enum": ["celsius", "fahrenheit"]}
    assert properties["e"] == {"$ref": "#/$defs/Place"}
    assert facts["parameters"]["$defs"]["Place"]["required"] == ["city"]
    assert properties["g"] == {}
    assert facts["parameters"]["required"] == ["a", "b", "c", "d", "e"]


def test_functions_that_json_cannot_call_are_refused():
    def several(*words: str):
        """No name for them."""

    def strange(x: complex):
        """No schema for it."""

    with pytest.raises(RequestError, match="cannot be given by name"):
        tools_of([several])
    with pytest.raises(RequestError, match="no JSON schema for <class 'complex'>") as caught:
        tools_of([strange])
    assert "strange, parameter x" in str(caught.value)
    with pytest.raises(RequestError, match="two tools are called weather"):
        tools_of([weather, {"name": "weather"}])


def call(name: str, **arguments) -> dict:
    return {"name": name, "arguments": arguments, "id": "x"}


def test_results_are_texts_or_json_or_what_went_wrong():
    def fails(x: int) -> int:
        return 1 // x

    def many(n: int):
        return "x" * n

    def place(p: Place, u: Unit = Unit.C):
        return {"city": p.city, "unit": u.name}

    box = Toolbox([weather, fails, many, place, {"name": "elsewhere", "parameters": {}}])
    assert box.result(call("weather", city="Rome")) == "Rome: 18 C, 1"
    assert box.result(call("weather", city="Rome", days=2.0)) == "Rome: 18 C, 2"
    assert box.result(call("fails", x=1)) == "1"
    assert box.result(call("place", p={"city": "Oslo"}, u="fahrenheit")) == (
        '{"city": "Oslo", "unit": "F"}'
    )
    for bad, words in (
        (call("fails", x=0), "ZeroDivisionError"),
        (call("fails", x="1"), 'x is to be int, not "1"'),
        (call("fails", x=True), "x is to be int"),
        (call("fails"), "fails needs the parameter x"),
        (call("fails", x=1, y=2), "fails has no parameter y; it has x"),
        (call("weather", city="Rome", unit="K"), "unit is one of 'C', 'F'"),
        (call("place", p={"town": 1}), "p is no"),
        (call("wether", city="Rome"), 'no tool is called "wether"; there are elsewhere, fails'),
    ):
        assert box.result(bad).startswith("error: ")
        assert words in box.result(bad)
    long = box.result(call("many", n=MAX_RESULT + 1))
    assert long[:MAX_RESULT] == "x" * MAX_RESULT
    assert "cut here" in long
    assert box.runs("weather")
    assert box.runs("wether")
    assert not box.runs("elsewhere")


def calling(name: str, **arguments) -> str:
    facts = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{facts}\n</tool_call>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = with_template(tmp_path_factory.mktemp("tools") / "t.gguf", template=TEMPLATE)
    with Model(path, context=256, threads=1) as model:
        yield model


@pytest.fixture
def says(model, monkeypatch):
    """A function that has the model give these answers, one after the other."""

    def prepare(*texts: str) -> None:
        tokens = iter([i for text in texts for i in [*model.tokenize(text), END]])

        def pick_all(logits, picks):
            assert len(picks) == 1
            return [next(tokens)]

        monkeypatch.setattr(model.backend, "pick_all", pick_all)

    return prepare


def test_a_turn_calls_tools_until_an_answer_calls_none(model, says):
    says("Wait." + calling("weather", city="Rome"), calling("weather", city="Oslo"), "18, both.")
    with model.chat(tools=[weather]) as chat:
        stream = chat.stream("Rome? Oslo?", events=True, speculate=False)
        events = list(stream)
        assert stream.result.text == "18, both."
        assert [c.finish_reason for c in stream.completions] == ["tool_calls", "tool_calls", "stop"]
    kinds = [kind for kind, _ in events]
    assert [k for k in kinds if k != "text"] == ["tool", "result", "tool", "result"]
    assert [text for kind, v in events if kind == "result" for text in [v[1]]] == [
        "Rome: 18 C, 1",
        "Oslo: 18 C, 1",
    ]
    roles = [m["role"] for m in chat.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    first, result = chat.messages[1:3]
    assert first["content"] == "Wait."
    assert first["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Rome"}}
    assert result["tool_call_id"] == first["tool_calls"][0]["id"]
    assert (result["name"], result["content"]) == ("weather", "Rome: 18 C, 1")


def test_send_gives_the_last_answer(model, says):
    says(calling("weather", city="Rome"), "Mild.")
    with model.chat(tools=[weather]) as chat:
        assert chat.send("Rome?", speculate=False).text == "Mild."
        assert len(chat.messages) == 4


def test_what_nobody_allows_is_not_called(model, says):
    asked = []

    def no(call):
        asked.append(dict(call))
        return False

    def never() -> None:
        raise AssertionError

    says(calling("never"), "Pity.")
    with model.chat(tools=[never], confirm=no) as chat:
        assert chat.send("Do it", speculate=False).text == "Pity."
    assert [c["name"] for c in asked] == ["never"]
    assert chat.messages[2]["content"] == "error: the user declined this call"


def test_rounds_of_calls_have_a_limit_and_it_is_said(model, says):
    says(*[calling("weather", city=str(k)) for k in range(3)])
    with model.chat(tools=[weather], max_rounds=2) as chat:
        out = chat.send("Go", speculate=False)
    assert out.finish_reason == "tool_calls"
    assert "tool-rounds" in [n.code for n in out.notices]
    results = [m["content"] for m in chat.messages if m["role"] == "tool"]
    assert results[:2] == ["0: 18 C, 1", "1: 18 C, 1"]
    assert results[2].startswith("error: not called")


def test_calls_of_tools_that_are_no_functions_are_the_callers(model, says):
    says(calling("elsewhere", x=1), "Three.")
    with model.chat(tools=[{"name": "elsewhere", "parameters": {}}]) as chat:
        out = chat.send("Go", speculate=False)
        assert (out.finish_reason, out.tool_calls[0]["arguments"]) == ("tool_calls", {"x": 1})
        result = {"role": "tool", "tool_call_id": out.tool_calls[0]["id"], "content": "3"}
        chat.messages.append({**result, "name": "elsewhere"})
        assert chat.send(None, speculate=False).text == "Three."
    assert [m["role"] for m in chat.messages] == ["user", "assistant", "tool", "assistant"]


def test_closing_a_turn_calls_nothing_more_and_leaves_no_call_without_a_result(model, says):
    called = []

    def slow(k: int) -> str:
        called.append(k)
        stream.close()
        return "done"

    says(calling("slow", k=1) + calling("slow", k=2), "never said")
    with model.chat(tools=[slow]) as chat:
        stream = chat.stream("Go", speculate=False)
        assert list(stream) == []
    assert called == [1]
    results = [m["content"] for m in chat.messages if m["role"] == "tool"]
    assert results == ["done", "error: not called, the turn was stopped"]


def test_an_interrupted_tool_leaves_a_whole_conversation(model, says):
    def struck() -> None:
        raise KeyboardInterrupt

    says(calling("struck"), "Again.")
    with model.chat(tools=[struck]) as chat:
        with pytest.raises(KeyboardInterrupt):
            chat.send("Go", speculate=False)
        assert [m["role"] for m in chat.messages] == ["user", "assistant", "tool"]
        says("Again.")
        assert chat.send("Go on", speculate=False).text == "Again."


def test_complete_takes_functions_and_calls_none(model, says):
    says(calling("weather", city="Rome"))
    out = model.complete("Rome?", tools=[weather], speculate=False)
    assert (out.finish_reason, out.text) == ("tool_calls", "")
    assert out.tool_calls[0]["name"] == "weather"
