"""The way to the end: bytes that make a text whole, soon.

A walk over single bytes that takes what closes things first. It sees only which bytes are allowed,
never the grammar: where a string has to hold an expression, examples of the expression help it;
where it does not arrive it looks a byte ahead, and at last takes turns among the bytes that are
allowed. Short, not always shortest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.text.constraint.vocabulary import BYTE_END

if TYPE_CHECKING:
    from llguidance import LLMatcher

MOST_BYTES = 1 << 16  # of a closing text
SOON = 1024
ASCII = 128
MOST_WAYS = 128  # bytes that are looked behind
PATIENCE = 3  # times that the same choice is met before turns are taken

# What ends objects, arrays, strings and items comes first; then what is a whole value already.
_LIKED = b'}])",:0n1tf[{Z!' + b">.;-'/_a\n "
QUOTE, STRING = ord('"'), 60  # more bytes than that are allowed in strings alone
_RANK = np.full(256, 100, np.int64)
_RANK[[*b"bcdeghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY23456789"]] = 60
_RANK[list(_LIKED)] = np.arange(len(_LIKED))


def shortest(
    matcher: LLMatcher, examples: Sequence[bytes] = (), json: bool = False
) -> bytes | None:
    """Bytes that make the text whole from the matcher's state, over single bytes.

    None where none were found. The matcher stays as it is. `examples` are texts that strings may
    have to hold; `json` says that the text is JSON, where what closes things is known.
    """
    stages = ((SOON, False), (SOON, True), (MOST_BYTES, False))
    for most, careful in stages if json else stages[1:]:
        text = _walk(matcher.deep_copy(), examples, most, careful=careful)
        if text is not None:
            return text
    return None


def _walk(state: LLMatcher, examples: Sequence[bytes], most: int, *, careful: bool) -> bytes | None:
    out = bytearray()
    seen: dict[tuple[bytes, int], int] = {}
    helped = False  # an example was tried in this string
    while len(out) <= most:
        if state.is_accepting():
            return bytes(out)
        forced = state.compute_ff_bytes()
        if forced:
            if state.try_consume_tokens(list(forced)) != len(forced):
                return None
            out += forced
            continue
        mask = state.compute_bitmask()
        ways = _ways(mask)
        if not ways:
            return None
        if examples and not helped and len(ways) > STRING and ways[0] != QUOTE:
            helped = True
            example = _fitting(state, examples)
            if example:
                out += example
                continue
        byte = ways[0]
        if careful:
            key = (mask, out[-1] if out else 0)
            turn = seen[key] = seen.get(key, -1) + 1
            byte = ways[turn % len(ways)] if turn > PATIENCE else _narrowest(state, ways)
        if byte == QUOTE:
            helped = False
        if not state.consume_token(byte):
            return None
        out.append(byte)
    return None


def _narrowest(state: LLMatcher, ways: list[int]) -> int:
    """The byte that ends the text, else the one behind which there is the least choice."""
    best = (BYTE_END + 1, 0, ways[0])
    plain = [b for b in ways if b < ASCII] or ways
    for k, byte in enumerate(plain[:MOST_WAYS]):
        copy = state.deep_copy()
        if not copy.consume_token(byte):
            continue
        if copy.is_accepting():
            return byte
        best = min(best, (len(_allowed(copy.compute_bitmask())), k, byte))
    return best[2]


def _fitting(state: LLMatcher, examples: Sequence[bytes]) -> bytes:
    """The first example that may stand here, read into the state; nothing where none may."""
    for example in examples:
        copy = state.deep_copy()
        if copy.try_consume_tokens(list(example)) == len(example):
            end = _ways(copy.compute_bitmask())
            if end and end[0] == QUOTE:
                state.consume_tokens(list(example))
                return example
    return b""


def _allowed(mask: bytes) -> NDArray[np.int64]:
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
    return np.flatnonzero(bits[:BYTE_END])


def _ways(mask: bytes) -> list[int]:
    """Bytes that may come next, the likeliest to end the text first."""
    allowed = _allowed(mask)
    order = [int(b) for b in allowed[np.argsort(_RANK[allowed], kind="stable")]]
    if len(order) > STRING and QUOTE in order:  # } and ] are letters here
        order.remove(QUOTE)
        order.insert(0, QUOTE)
    return order


def example_of(pattern: str) -> bytes:
    """A short text that an expression finds; nothing for what Python's own reader does not know."""
    try:
        text = _example(re._parser.parse(pattern))  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError):
        return b""
    return text.encode("utf-8", "ignore")[:SOON]


_SAMPLES = {"CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " "}
_NOT_SAMPLES = {"CATEGORY_NOT_DIGIT": "a", "CATEGORY_NOT_WORD": " ", "CATEGORY_NOT_SPACE": "a"}


def _example(parts: Iterable[Any]) -> str:
    out = []
    for op, value in parts:
        name = str(op)
        if name == "LITERAL":
            out.append(chr(value))
        elif name == "ANY":
            out.append("a")
        elif name == "IN":
            out.append(_member(value))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, _, inner = value
            out.append(_example(inner) * min(least, SOON))
        elif name == "SUBPATTERN":
            out.append(_example(value[-1]))
        elif name == "BRANCH":
            out.append(min((_example(b) for b in value[1]), key=len))
        elif name == "NOT_LITERAL":
            out.append("a" if value != ord("a") else "b")
    return "".join(out)


def _member(members: list[Any]) -> str:
    first, value = members[0]
    if str(first) == "NEGATE":
        taken = {chr(v) for op, v in members[1:] if str(op) == "LITERAL"}
        spans = [v for op, v in members[1:] if str(op) == "RANGE"]
        free = (
            c
            for c in "a0 -ABCxyz_.!"
            if c not in taken and not any(low <= ord(c) <= high for low, high in spans)
        )
        return next(free, "")
    if str(first) == "RANGE":
        return chr(value[0])
    if str(first) == "CATEGORY":
        return (_SAMPLES | _NOT_SAMPLES).get(str(value), "a")
    return chr(value)
