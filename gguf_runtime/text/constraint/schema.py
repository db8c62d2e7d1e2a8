"""JSON schemas: what can be enforced, and what is refused before anything runs.

A keyword that the decoder cannot enforce is refused with its place; ignoring it would give an answer
that looks right and is not. Draft 2020-12 meaning: objects are open unless they say
`additionalProperties: false`. Keys come in the order of `properties`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from gguf_runtime.errors import RequestError, show

MOST_DEPTH = 100
MOST_NODES = 200_000

# One space, or a new line or two with up to 20 blanks: without a limit a model may write blanks for ever.
WHITESPACE = r"(?: |\n{1,2}[ \t]{0,20})?"

ANNOTATIONS = frozenset(
    [
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "$vocabulary",
        "title",
        "description",
        "default",
        "example",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
    ]
)
ENFORCED = frozenset(
    [
        "$ref",
        "$defs",
        "definitions",
        "type",
        "enum",
        "const",
        "allOf",
        "anyOf",
        "oneOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
    ]
)
FORMATS = frozenset(
    ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
)

_ONE = ("items", "additionalItems", "additionalProperties")  # keywords whose value is a schema
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def prepared(schema: Any) -> dict[str, Any]:
    """The schema as the decoder takes it.

    Args:
        schema: an object, true, or the JSON text of one of them.

    Raises:
        RequestError: not a schema, or one with a keyword that cannot be enforced, by its pointer.
    """
    if isinstance(schema, str | bytes):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as e:
            raise RequestError(f"the schema is not JSON: {e}", where="schema") from None
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise RequestError(
            "not a JSON schema", where="schema", expected="an object", got=show(schema)
        )
    for pointer, node in _schemas(schema):
        _check(pointer, node)
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def located(schema: Any, message: str) -> RequestError:
    """What the compiler of grammars said about a schema, as our error."""
    line = message.strip().partition("\n")[0]
    fact = line.rpartition("JSON schema: ")[2]
    if fact.startswith("Unsatisfiable"):
        fact = fact.removeprefix("Unsatisfiable schema: ")
        return RequestError(f"no JSON text satisfies the schema: {fact}", where="schema")
    if "oneOf" in message:
        where = next((p for p, n in _schemas(schema) if isinstance(n, dict) and "oneOf" in n), "")
        return RequestError(
            "oneOf whose branches may hold at the same time cannot be enforced",
            where=f"schema, {where}/oneOf",
            hint="use anyOf, or branches of different types or with a constant that differs",
        )
    return RequestError(f"the schema cannot be enforced: {fact}", where="schema")


def patterns(source: Any) -> Iterator[str]:
    """Every `pattern` of a schema."""
    if isinstance(source, str | bytes):
        source = json.loads(source)
    for _, node in _schemas(source):
        if isinstance(node, dict) and isinstance(node.get("pattern"), str):
            yield node["pattern"]


def _schemas(schema: Any) -> Iterator[tuple[str, Any]]:
    """(JSON pointer, schema) of all schemas within; bounded."""
    work: list[tuple[str, Any, int]] = [("", schema, 0)]
    seen = 0
    while work:
        pointer, node, depth = work.pop()
        seen += 1
        if depth > MOST_DEPTH or seen > MOST_NODES:
            raise RequestError(
                "the schema is too deep" if depth > MOST_DEPTH else "the schema is too large",
                where=f"schema, {pointer[:80]}",
                expected=f"at most {MOST_DEPTH} levels and {MOST_NODES:,} parts",
            )
        yield pointer, node
        if not isinstance(node, dict):
            continue
        ones = (k for k in _ONE if isinstance(node.get(k), dict | bool))
        work += [(f"{pointer}/{key}", node[key], depth + 1) for key in ones]
        for key in _LISTS:
            if isinstance(node.get(key), list):
                work += [(f"{pointer}/{key}/{i}", x, depth + 1) for i, x in enumerate(node[key])]
        for key in _MAPS:
            if isinstance(node.get(key), dict):
                work += [
                    (f"{pointer}/{key}/{_escaped(k)}", x, depth + 1) for k, x in node[key].items()
                ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _check(pointer: str, node: Any) -> None:
    where = f"schema, {pointer or '/'}"
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        raise RequestError(
            "not a JSON schema", where=where, expected="an object, true or false", got=show(node)
        )
    for key in node:
        if key in ENFORCED or key in ANNOTATIONS:
            continue
        if key.startswith("x-") and key != "x-guidance":
            continue
        near = difflib.get_close_matches(key, sorted(ENFORCED), n=1, cutoff=0.8)
        raise RequestError(
            f"the keyword {show(key)} cannot be enforced",
            where=where,
            hint=f"did you mean {near[0]}?"
            if near
            else "take it out, and check the answer yourself",
        )
    form = node.get("format")
    if form is not None and form not in FORMATS:
        raise RequestError(
            f"the format {show(form)} cannot be enforced",
            where=where,
            expected="one of " + ", ".join(sorted(FORMATS)),
            hint="use a pattern, or take it out",
        )
