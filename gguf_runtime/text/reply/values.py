"""Values in calls, read while they come: JSON, Gemma's spelling of it, and Python's.

All are checked character by character, so that a call which breaks is known to be broken at once,
and read by the standard library when they are complete. Nothing here recurses.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from gguf_runtime.text.reply.source import SPACE, Reading, Source, Unreadable

MAX_DEPTH = 100

_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_WORD = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_PYTHON_NAMES = {"true": True, "false": False, "null": None}

GEMMA_QUOTE = '<|"|>'

# Where a value stands: alone or behind a key, behind an opening bracket, a comma, or a value.
_VALUE, _FIRST, _NEXT, _MORE = range(4)


def json_value(source: Source) -> Reading[Any]:
    """A JSON value; control characters in its texts are forgiven."""
    start = source.at
    yield from _structure(source, gemma=None)
    return loads(source.text[start : source.at])


def gemma_value(source: Source) -> Reading[Any]:
    """A value as Gemma 4 writes it: bare keys, and texts between marks of their own."""
    out: list[str] = []
    yield from _structure(source, gemma=out)
    return loads("".join(out))


def loads(text: str) -> Any:
    """What complete JSON says; `Unreadable` where that is no value that can be passed on."""
    try:
        value = json.loads(text, strict=False)
        # Half of a surrogate pair can be written in JSON, but no text that holds it can be sent.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        raise Unreadable from e
    return value


def _structure(source: Source, gemma: list[str] | None) -> Reading[None]:
    """Pass over one value; Gemma's is written to a list as JSON."""
    closers: list[str] = []
    state = _VALUE
    while True:
        yield from source.spaces()
        c = yield from source.peek()
        inside = closers[-1] if closers else ""
        if c == inside != "" and state in (_FIRST, _MORE):
            closers.pop()
            state = _MORE
        elif state == _MORE and c == ",":
            state = _NEXT
        elif state in (_FIRST, _NEXT) and inside == "}":
            yield from _key(source, gemma)
            state = _VALUE
            continue
        elif state != _MORE and c and c in "{[" and len(closers) < MAX_DEPTH:
            closers.append("}" if c == "{" else "]")
            state = _FIRST
        elif state != _MORE and c:
            yield from _scalar(source, gemma)
            c, state = "", _MORE
        else:
            raise Unreadable
        source.at += len(c)
        if gemma is not None:
            gemma.append(c)
        if not closers:
            return


def _key(source: Source, gemma: list[str] | None) -> Reading[None]:
    if gemma is None:
        if (yield from source.peek()) != '"':
            raise Unreadable
        yield from _quoted(source)
    else:
        if (yield from source.comes(GEMMA_QUOTE)):
            key, _ = yield from source.until(GEMMA_QUOTE)
        else:
            key = ""
            while (c := (yield from source.peek())) and (c.isalnum() or c in "_-.$"):
                key += c
                source.at += 1
            if not key:
                raise Unreadable
        gemma.append(json.dumps(key) + ":")
    yield from source.spaces()
    yield from source.expect(":")


def _scalar(source: Source, gemma: list[str] | None) -> Reading[None]:
    c = yield from source.peek()
    start = source.at
    if gemma is not None and c == "<":
        yield from source.expect(GEMMA_QUOTE)
        text, _ = yield from source.until(GEMMA_QUOTE)
        gemma.append(json.dumps(text))
        return
    if c == '"':
        yield from _quoted(source)
    else:
        while (c := (yield from source.peek())) and c in _WORD:
            source.at += 1
        if not _SCALAR.fullmatch(source.text, start, source.at):
            raise Unreadable
    if gemma is not None:
        gemma.append(source.text[start : source.at])


def _quoted(source: Source, mark: str = '"') -> Reading[None]:
    """Pass over a text in quotes."""
    source.at += 1
    special = _ENDS[mark]
    while True:
        found = special.search(source.text, source.at)
        if found is None:
            source.at = len(source.text)
            if source.ended:
                raise Unreadable
            yield
        elif found[0] == mark:
            source.at = found.end()
            return
        else:  # a backslash: what follows belongs to it
            source.at = found.end()
            if not (yield from source.peek()):
                raise Unreadable
            source.at += 1


_ENDS = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


def python_calls(source: Source) -> Reading[list[tuple[str, dict[str, Any]]]]:
    """Calls as Python writes them, `[f(a=1), g()]`, or one, `f.call(a=1)`: names and arguments."""
    start, depth = source.at, 0
    begun = False
    while not begun or depth:
        c = yield from source.peek()
        if not c:
            raise Unreadable
        if c in "\"'":
            yield from _quoted(source, c)
            continue
        depth += (c in "([{") - (c in ")]}")
        begun = begun or c in "([{"
        if depth > MAX_DEPTH or (not begun and not (c.isalnum() or c in "_.-" + SPACE)):
            raise Unreadable
        source.at += 1
    try:
        tree = ast.parse(source.text[start : source.at].strip(), mode="eval").body
        listed = tree.elts if isinstance(tree, ast.List) else [tree]
        return [_python_call(call) for call in listed]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as e:
        raise Unreadable from e


def _python_call(call: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError
    name = ast.unparse(call.func)
    arguments = {}
    for k in call.keywords:
        if k.arg is None:
            raise ValueError
        arguments[k.arg] = ast.literal_eval(_Names().visit(k.value))
    json.dumps(arguments, ensure_ascii=False).encode()
    return name, arguments


class _Names(ast.NodeTransformer):
    """JSON's names for Python's values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in _PYTHON_NAMES:
            raise ValueError(node.id)
        return ast.copy_location(ast.Constant(_PYTHON_NAMES[node.id]), node)
