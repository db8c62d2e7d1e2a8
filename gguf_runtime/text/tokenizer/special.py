"""Finding tokens that are matched in the raw text, the longest at the leftmost place.

A trie is walked from every place where a token can begin; a walk is at most as long as the longest
token, so time is linear in the text. Branches grow when a text first enters them: gemma has 6,500
control tokens, and a prompt meets three.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gguf_runtime.text.tokenizer.classes import code_points

_END = ""  # the key under which a node of the trie keeps its token

Node = dict[str, Any]  # by character: a node, or the tokens of a branch that has not grown yet


class Finder:
    """A set of texts, each with its token; of a text that comes twice the last one counts."""

    def __init__(self, tokens: Iterable[tuple[str, int]]) -> None:
        self._trie = _grown([item for item in tokens if item[0]], 0)
        firsts = np.array(sorted(map(ord, self._trie)), np.uint32)
        self._begins = np.zeros(int(firsts[-1]) + 2 if len(firsts) else 1, np.bool_)
        self._begins[firsts] = True

    def __bool__(self) -> bool:
        return bool(self._trie)

    def starts(self, text: str) -> list[int]:
        """Places where a token may begin, ascending."""
        if not self._trie:
            return []
        codes = np.minimum(code_points(text), len(self._begins) - 1)
        found: list[int] = np.flatnonzero(self._begins[codes]).tolist()
        return found

    def match(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """(token, its end) of the longest token at `start` that ends by `end`."""
        best = None
        for at, node in self._walk(text, start, end):
            if _END in node:
                best = node[_END], at
        return best

    def may_go_on(self, text: str, start: int, end: int) -> bool:
        """Whether text[start:end] is a beginning of a token, but not all of one."""
        for at, node in self._walk(text, start, end):
            if at == end:
                return any(c != _END for c in node)
        return False

    def split(self, text: str) -> Iterator[str | int]:
        """Tokens, and the texts between them; no empty text."""
        done = 0
        for start in self.starts(text):
            if start >= done and (found := self.match(text, start, len(text))):
                if start > done:
                    yield text[done:start]
                yield found[0]
                done = found[1]
        if done < len(text):
            yield text[done:]

    def _walk(self, text: str, start: int, end: int) -> Iterator[tuple[int, Node]]:
        """The places behind text[start], text[start + 1], … as far as tokens go, and their nodes."""
        node = self._trie
        for at in range(start, end):
            child = node.get(text[at])
            if child is None:
                return
            if isinstance(child, list):
                child = node[text[at]] = _grown(child, at - start + 1)
            node = child
            yield at + 1, node


def _grown(tokens: list[tuple[str, int]], depth: int) -> Node:
    """The node of tokens that share their first `depth` characters."""
    node: Node = {}
    for item in tokens:
        text, token = item
        if len(text) == depth:
            node[_END] = token
        elif text[depth] in node:
            node[text[depth]].append(item)
        else:
            node[text[depth]] = [item]
    return node
