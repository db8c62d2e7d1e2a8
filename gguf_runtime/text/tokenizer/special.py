"""Finding tokens that are matched in the raw text, the longest at the leftmost place.

A trie is walked from every place where a token can begin; a walk is at most as long as the longest
token, so time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gguf_runtime.text.tokenizer.classes import code_points

_END = ""  # the key under which a node of the trie keeps its token


class Finder:
    """A set of texts, each with its token."""

    def __init__(self, tokens: Iterable[tuple[str, int]]) -> None:
        self._trie: dict[str, Any] = {}
        for text, token in tokens:
            if not text:
                continue
            node = self._trie
            for c in text:
                node = node.setdefault(c, {})
            node[_END] = token
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
        node: dict[str, Any] | None = self._trie
        best = None
        at = start
        while at < end:
            node = node.get(text[at])  # type: ignore[union-attr]
            if node is None:
                break
            at += 1
            if _END in node:
                best = node[_END], at
        return best

    def may_go_on(self, text: str, start: int, end: int) -> bool:
        """Whether text[start:end] is a beginning of a token, but not all of one."""
        node = self._trie
        for at in range(start, end):
            if text[at] not in node:
                return False
            node = node[text[at]]
        return any(c != _END for c in node)

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
