"""The ways in which models write calls; one reader for each.

A reader starts behind the words that opened it, and hands out each call as soon as it is complete.
`Unreadable` means that what is left is no call; calls before it count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gguf_runtime.text.reply.source import Reading, Source, Unreadable
from gguf_runtime.text.reply.values import GEMMA_QUOTE, gemma_value, json_value, loads, python_calls


class ToolCall(dict[str, Any]):
    """A call: `name`, `arguments` (an object), and `id` where the format carries one."""

    @classmethod
    def of(cls, name: str, arguments: Mapping[str, Any], call_id: str | None = None) -> ToolCall:
        """A call; without an id no key for it."""
        call = cls(name=name, arguments=dict(arguments))
        if call_id is not None:
            call["id"] = call_id
        return call

    @property
    def name(self) -> str:
        """The tool."""
        name: str = self["name"]
        return name

    @property
    def arguments(self) -> dict[str, Any]:
        """By parameter."""
        arguments: dict[str, Any] = self["arguments"]
        return arguments

    @property
    def id(self) -> str | None:
        """What the result refers to."""
        return self.get("id")


Give = Callable[[ToolCall], None]


class Tools:
    """The tools that a model was told of, for the types of their parameters."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self._types: dict[tuple[str, str], tuple[Any, ...]] = {}
        for tool in tools:
            function = tool.get("function", tool) if isinstance(tool, Mapping) else {}
            parameters = function.get("parameters") or {}
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
            for key, schema in (properties or {}).items():
                self._types[str(function.get("name")), key] = tuple(_types(schema))

    def typed(self, name: str, key: str, text: str) -> Any:
        """A value that was written as plain text, as its schema has it; a text where it says nothing."""
        types = self._types.get((name, key), ())
        if not types or "string" in types:
            return None if text == "null" and "null" in types else text
        try:
            return loads(text.strip().lower() if "boolean" in types else text)
        except Unreadable:
            return text


def _types(schema: Any) -> Iterable[Any]:
    if not isinstance(schema, Mapping):
        return
    kind = schema.get("type", ())
    yield from [kind] if isinstance(kind, str) else kind
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _types(option)
    yield from {_json_type(v) for v in schema.get("enum", ()) if "type" not in schema}


def _json_type(value: Any) -> str:
    return "string" if isinstance(value, str) else "null" if value is None else "other"


def from_object(value: Any, *, complete: bool = False) -> ToolCall:
    """The call that a JSON object describes; `complete`: the arguments may not be left out."""
    if not isinstance(value, dict):
        raise Unreadable
    if isinstance(value.get("function"), dict):
        value = {**value, **value["function"]}
    name = value.get("name", value.get("tool_name"))
    found = [value[k] for k in ("arguments", "parameters") if k in value]
    arguments = found[0] if found else None if complete else {}
    if isinstance(arguments, str):
        arguments = loads(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise Unreadable
    call_id = value.get("id", value.get("tool_call_id"))
    return ToolCall.of(name, arguments, None if call_id is None else str(call_id))


def objects(source: Source, give: Give) -> Reading[None]:
    """One object, objects one after another, or a list of them."""
    yield from source.spaces()
    if (yield from source.comes("[")):
        yield from source.spaces()
        while not (yield from source.comes("]")):
            give(from_object((yield from json_value(source))))
            yield from source.spaces()
            if (yield from source.peek()) != "]":
                yield from source.expect(",")
                yield from source.spaces()
        return
    while True:
        give(from_object((yield from json_value(source))))
        yield from source.spaces()
        if (yield from source.peek()) != "{":
            return


def tool_call(source: Source, give: Give, tools: Tools) -> Reading[None]:
    """Between <tool_call> and </tool_call>: JSON, or a name and parameters in tags."""
    yield from source.spaces()
    if (yield from source.comes("<function=")):
        yield from function(source, give, tools)
    else:
        yield from objects(source, give)
    yield from close(source, "</tool_call>")


def close(source: Source, word: str) -> Reading[None]:
    """Pass over the closing word, if it comes; a complete call counts without."""
    start = source.at
    yield from source.spaces()
    if not (yield from source.comes(word)):
        source.at = start


def function(source: Source, give: Give, tools: Tools) -> Reading[None]:
    """Behind <function=: a name, then <parameter=…> or JSON, then </function>."""
    name, _ = yield from source.until(">")
    _refuse_odd(name)
    yield from source.spaces()
    arguments: dict[str, Any] = {}
    if (yield from source.peek()) == "{":
        value = yield from json_value(source)
        give(from_object({"name": name, "arguments": value}))
        yield from close(source, "</function>")
        return
    while (yield from source.comes("<parameter=")):
        key, _ = yield from source.until(">")
        text, _ = yield from source.until("</parameter>")
        text = text.removeprefix("\n").removesuffix("\n")
        arguments[key] = tools.typed(name, key, text)
        yield from source.spaces()
    yield from source.expect("</function>")
    give(ToolCall.of(name, arguments))


def wrapped_function(source: Source, give: Give, tools: Tools, closing: str) -> Reading[None]:
    """Calls as <function=…>, to a closing word."""
    yield from source.spaces()
    yield from source.expect("<function=")
    while True:
        yield from function(source, give, tools)
        yield from source.spaces()
        if not (yield from source.comes("<function=")):
            break
    yield from close(source, closing)


def keys_and_values(source: Source, give: Give, tools: Tools, suffix: str = "") -> Reading[None]:
    """A name, then <arg_key> and <arg_value>, to </tool_call>."""
    begin, end = f"<arg_key{suffix}>", f"</tool_call{suffix}>"
    name, mark = yield from source.until(begin, end)
    name = name.strip().removesuffix(f"<tool_sep{suffix}>").strip()
    _refuse_odd(name)
    arguments: dict[str, Any] = {}
    while mark == begin:
        key, _ = yield from source.until(f"</arg_key{suffix}>")
        yield from source.spaces()
        yield from source.expect(f"<arg_value{suffix}>")
        text, _ = yield from source.until(f"</arg_value{suffix}>")
        arguments[key.strip()] = tools.typed(name, key.strip(), text)
        yield from source.spaces()
        if not (yield from source.comes(begin)):
            yield from source.expect(end)
            mark = end
    give(ToolCall.of(name, arguments))


def invoke(source: Source, give: Give, tools: Tools, p: str, closing: str) -> Reading[None]:
    """Calls as <invoke name="…"> and <parameter name="…">, `p` before each of the words."""
    yield from source.spaces()
    more = yield from source.expect(f'<{p}invoke name="')
    while more:
        name, _ = yield from source.until('"')
        _refuse_odd(name)
        yield from source.until(">")
        yield from source.spaces()
        arguments: dict[str, Any] = {}
        while (yield from source.comes(f'<{p}parameter name="')):
            key, _ = yield from source.until('"')
            kind, _ = yield from source.until(">")
            text, _ = yield from source.until(f"</{p}parameter>")
            told = 'string="false"' in kind
            arguments[key] = _told(text) if told else tools.typed(name, key, text)
            yield from source.spaces()
        yield from source.expect(f"</{p}invoke>")
        give(ToolCall.of(name, arguments))
        yield from source.spaces()
        more = yield from source.comes(f'<{p}invoke name="')
    yield from _end(source, closing)


def _told(text: str) -> Any:
    try:
        return loads(text)
    except Unreadable:
        return text


def _end(source: Source, closing: str) -> Reading[None]:
    """The end of a section, or of the text."""
    if (yield from source.peek()):
        yield from source.expect(closing)


def deepseek(source: Source, give: Give) -> Reading[None]:
    """A section of DeepSeek's calls, the kind before the name (R1) or not (V3.1)."""
    yield from source.spaces()
    more = yield from source.expect("<｜tool▁call▁begin｜>")
    while more:
        name, _ = yield from source.until("<｜tool▁sep｜>")
        fenced = (yield from source.peek()) not in ("{", "", " ", "\n")
        if fenced:
            name, _ = yield from source.until("\n")
            yield from source.expect("```json")
        yield from source.spaces()
        value = yield from json_value(source)
        give(from_object({"name": name.strip(), "arguments": value}))
        if fenced:
            yield from source.spaces()
            yield from source.comes("```")
        yield from close(source, "<｜tool▁call▁end｜>")
        yield from source.spaces()
        more = yield from source.comes("<｜tool▁call▁begin｜>")
    yield from _end(source, "<｜tool▁calls▁end｜>")


def kimi(source: Source, give: Give) -> Reading[None]:
    """A section of Kimi's calls; their id holds the name."""
    yield from source.spaces()
    more = yield from source.expect("<|tool_call_begin|>")
    while more:
        call_id, _ = yield from source.until("<|tool_call_argument_begin|>")
        call_id = call_id.strip()
        name = call_id.removeprefix("functions.").rpartition(":")[0] or call_id
        yield from source.spaces()
        value = yield from json_value(source)
        give(from_object({"name": name, "arguments": value, "id": call_id}))
        yield from close(source, "<|tool_call_end|>")
        yield from source.spaces()
        more = yield from source.comes("<|tool_call_begin|>")
    yield from _end(source, "<|tool_calls_section_end|>")


def mistral(source: Source, give: Give) -> Reading[None]:
    """Behind [TOOL_CALLS]: a list of objects, or a name and its arguments."""
    yield from source.spaces()
    if (yield from source.peek()) == "[":
        yield from objects(source, give)
        return
    name, mark = yield from source.until("[CALL_ID]", "[ARGS]", "{")
    call_id = None
    if mark == "[CALL_ID]":
        call_id, _ = yield from source.until("[ARGS]")
    if mark == "{":
        source.at -= 1
    yield from source.spaces()
    value = yield from json_value(source)
    _refuse_odd(name.strip())
    give(from_object({"name": name.strip(), "arguments": value, "id": call_id}))


def gemma(source: Source, give: Give) -> Reading[None]:
    """Behind <|tool_call>: call:NAME{key:value,…}<tool_call|>."""
    yield from source.spaces()
    yield from source.expect("call:")
    name, _ = yield from source.until("{")
    _refuse_odd(name)
    source.at -= 1
    value = yield from gemma_value(source)
    give(from_object({"name": name, "arguments": value}))
    yield from close(source, "<tool_call|>")


def python(source: Source, give: Give, closing: str = "") -> Reading[None]:
    """Calls in Python's spelling, to a closing word."""
    for name, arguments in (yield from python_calls(source)):
        give(ToolCall.of(name.removesuffix(".call"), arguments))
    if closing:
        yield from close(source, closing)


def llama(source: Source, give: Give) -> Reading[None]:
    """At the beginning of a reply, or behind <|python_tag|>: an object, or name.call(…)."""
    yield from source.spaces()
    if (yield from source.peek()) == "{":
        give(from_object((yield from json_value(source)), complete=True))
    else:
        yield from python(source, give)


def closed(source: Source, give: Give, closing: str) -> Reading[None]:
    """JSON objects, to a closing word."""
    yield from objects(source, give)
    yield from close(source, closing)


def _refuse_odd(name: str) -> None:
    """No name of a tool is empty, or holds white space, quotes or brackets."""
    if not name or not all(c.isalnum() or c in "_.-:/" for c in name):
        raise Unreadable


# Words inside calls, which are printed where they are control tokens.
WORDS = (
    *("<tool_call>", "</tool_call>", "<function=", "</function>", "</parameter>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *("<|tool_calls_section_end|>", "[CALL_ID]", "[ARGS]", "<tool_call|>", GEMMA_QUOTE),
    *("<|END_ACTION|>", "</minimax:tool_call>", "</seed:tool_call>", "<|tool_call_end|>"),
    *("｜DSML｜", "</tool_calls>", "</TOOLCALL>"),
)
