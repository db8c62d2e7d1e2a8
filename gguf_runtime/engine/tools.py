"""Tools that a model may call: Python functions with their schemas, and what calling one gives.

A schema comes from signature, type hints and docstring. What a model sends is checked against the
signature; whatever goes wrong becomes the result, so that the model can try again.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.constraint.types import schema_of, value_of

MAX_RESULT = 1 << 15  # characters of a result that go back to the model

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_PARAM = re.compile(r"^:param\s+(?:[\w\[\], ]+\s+)?(\w+)\s*:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Tool:
    """A schema as the wire has it, and the function behind it, if there is one."""

    schema: Mapping[str, Any]
    function: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """What the model calls."""
        name: str = self.schema["function"]["name"]
        return name


class Toolbox:
    """Tools by name."""

    def __init__(self, given: Any) -> None:
        self._tools = {tool.name: tool for tool in tools_of(given)}

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """What the model is told."""
        return [tool.schema for tool in self._tools.values()]

    def runs(self, name: str) -> bool:
        """Whether a call can be answered here: the tool is a function, or there is no such tool."""
        tool = self._tools.get(name)
        return tool is None or tool.function is not None

    def result(self, call: Mapping[str, Any]) -> str:
        """What a call gives, as the model is told: a text, JSON, or what went wrong."""
        tool = self._tools.get(call["name"])
        if tool is None or tool.function is None:
            names = ", ".join(sorted(self._tools))
            return f"error: no tool is called {show(call['name'])}; there are {names or 'none'}"
        try:
            arguments = bound(tool.function, call["arguments"])
        except (TypeError, ValueError, RequestError) as e:
            return f"error: {e}"
        try:
            return as_text(tool.function(**arguments))
        except Exception as e:  # noqa: BLE001 - the model is told
            return f"error: {type(e).__name__}: {e}"


def tools_of(given: Any) -> list[Tool]:
    """Functions and schemas as tools; RequestError for anything else, and for a name that comes twice."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise RequestError("tools are a list", expected="functions or schemas", got=show(given))
    out: list[Tool] = []
    for k, tool in enumerate(given):
        made = tool if isinstance(tool, Tool) else _tool(k, tool)
        if made.name in (t.name for t in out):
            raise RequestError(f"two tools are called {made.name}")
        out.append(made)
    return out


def _tool(k: int, tool: Any) -> Tool:
    if callable(tool) and not isinstance(tool, Mapping):
        return Tool(function_schema(tool), tool)
    if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
        tool = {"type": "function", "function": dict(tool)}
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(
            f"tool {k} is no function and no schema of one",
            expected='{"type": "function", "function": {"name": …, "parameters": …}}',
            got=show(tool),
        )
    try:
        json.dumps(tool)
    except (TypeError, ValueError, RecursionError) as e:
        raise RequestError(f"tool {k} is no JSON: {e}") from None
    return Tool(tool)


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of a function: name, first lines of its docstring, and its parameters.

    Raises:
        RequestError: a parameter that JSON cannot give (positional only, *args, **kwargs), or a type
            hint that has no schema.
    """
    name = getattr(function, "__name__", type(function).__name__)
    about, described = described_by(inspect.getdoc(function) or "")
    hints = _hints(function)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    required = []
    for p in _parameters(function, name):
        schema = {} if p.name not in hints else _schema(hints[p.name], name, p.name)
        definitions |= schema.pop("$defs", {})
        if p.name in described:
            schema = {**schema, "description": described[p.name]}
        if p.default is inspect.Parameter.empty:
            required.append(p.name)
        elif _is_json(p.default) and p.default is not None:
            schema = {**schema, "default": p.default}
        properties[p.name] = schema
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if definitions:
        parameters["$defs"] = definitions
    facts = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": facts}


def described_by(docstring: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the whole, and of each parameter (Google's and Sphinx's form)."""
    about: list[str] = []
    described: dict[str, str] = {}
    section, last = "", ""
    for line in docstring.splitlines():
        text = line.strip()
        if (heading := _SECTION.match(text)) is not None:
            section, last = heading[1], ""
        elif (param := _PARAM.match(text)) is not None:
            last, described[param[1]] = param[1], param[2]
            section = "params"
        elif text.startswith(":"):
            section, last = "other", ""
        elif section in ("Args", "Arguments", "Parameters") and (found := _ARGUMENT.match(text)):
            last, described[found[1]] = found[1], found[2]
        elif last and text:
            described[last] += " " + text
        elif not section:
            about.append(text)
    return "\n".join(about).strip(), described


def bound(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the signature wants them; TypeError or ValueError says what is wrong."""
    name = getattr(function, "__name__", "the tool")
    parameters = {p.name: p for p in _parameters(function, name)}
    hints = _hints(function)
    unknown = [k for k in arguments if k not in parameters]
    if unknown:
        known = ", ".join(parameters) or "none"
        raise TypeError(f"{name} has no parameter {unknown[0]}; it has {known}")
    for p in parameters.values():
        if p.name not in arguments and p.default is inspect.Parameter.empty:
            raise TypeError(f"{name} needs the parameter {p.name}")
    return {k: _value(hints.get(k, Any), v, k) for k, v in arguments.items()}


def as_text(result: Any) -> str:
    """A result as the model is told: a text as it is, all else as JSON."""
    text = (
        result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    )
    text = text.encode("utf-8", "replace").decode()
    if len(text) > MAX_RESULT:
        return f"{text[:MAX_RESULT]}… ({len(text):,} characters, cut here)"
    return text


def _value(hint: Any, value: Any, name: str) -> Any:
    plain = typing.get_origin(hint) or hint
    if plain is float and type(value) is int:
        return float(value)
    if plain is int and isinstance(value, float) and value.is_integer():
        return int(value)
    fits = {str: str, int: int, float: float, bool: bool, list: list, dict: dict}.get(plain)
    wrong = fits is not None and (
        not isinstance(value, fits) or (isinstance(value, bool) and fits is not bool)
    )
    if wrong:
        raise TypeError(f"{name} is to be {plain.__name__}, not {show(value)}")
    if plain is typing.Literal and value not in typing.get_args(hint):
        raise ValueError(f"{name} is one of {', '.join(map(repr, typing.get_args(hint)))}")
    if fits is not None or plain in (Any, typing.Literal):
        return value
    try:
        return value_of(hint, value)
    except (KeyError, AttributeError) as e:
        raise ValueError(f"{name} is no {hint}: {e}") from None


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as e:
        raise RequestError(f"{name} has no signature: {e}", where="tools") from None
    for p in found:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise RequestError(
                f"{name} has a parameter that cannot be given by name: {p}", where="tools"
            )
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def _schema(hint: Any, function: str, parameter: str) -> dict[str, Any]:
    try:
        return schema_of(hint)
    except RequestError as e:
        raise RequestError(
            e.what, where=f"{function}, parameter {parameter}", expected=e.expected
        ) from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
