"""Pre-tokenizers given as regular expressions, run over classes of characters.

An expression is compiled by what it asks of characters: all that it does not tell apart become one
letter, so the text becomes a text over a small alphabet (ASCII stands for itself), and the expression
one that Python's `re` runs without Unicode tables. Unicode's properties are our own (`unicode_table`).

`re` goes back where a match fails, but these expressions are runs of classes one behind the other: it
goes back over a run once, and then another alternative takes that run. So time is linear in the
text; expressions for which that does not hold are functions in `pretokenizers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.text.tokenizer.classes import Runs, category

Mask = NDArray[np.bool_]

_ALL = 0x110000
_HAN = (
    "2e80-2e99 2e9b-2ef3 2f00-2fd5 3005 3007 3021-3029 3038-303b 3400-4dbf 4e00-9fff f900-fa6d"
    " fa70-fad9 16fe2-16fe3 16ff0-16ff1 20000-2a6df 2a700-2b739 2b740-2b81d 2b820-2cea1 2ceb0-2ebe0"
    " 2ebf0-2ee5d 2f800-2fa1d 30000-3134a 31350-323af"
)
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t"}


class Expression:
    """A pass of a pre-tokenizer: matches are words, and so is what lies between them."""

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], NDArray[np.uint8]]:
        """The expression over classes, and the class of each code point."""
        parts = _Parser(self.source).parts()
        groups = np.zeros(_ALL, np.int64)
        for part in parts:
            if not isinstance(part, str):
                groups = groups * 2 + part
                used = np.bincount(groups) > 0
                groups = (np.cumsum(used) - 1)[groups]
        count = int(groups[0x80:].max()) + 1
        if count > 0x80:
            raise ValueError(f"too many classes of characters in {self.source!r}")
        table = (groups + 0x80).astype(np.uint8)
        table[:0x80] = np.arange(0x80)
        if "\\p" not in self.source:
            # Ranges of scripts hold blanks of theirs, which are no part of any word.
            blank = category("W").copy()
            blank[:0x80] = False
            table[blank] = 0x0B
        beyond = groups[0x80:]
        some = np.zeros(count, np.int64)
        some[beyond] = np.arange(0x80, _ALL)  # a code point of each group
        out = []
        for part in parts:
            if isinstance(part, str):
                out.append(part)
                continue
            members = [chr(c) for c in range(0x80) if part[c]]
            members += [chr(0x80 + g) for g in range(count) if some[g] and part[some[g]]]
            out.append(f"[{''.join(map(re.escape, members))}]" if members else "(?!)")
        return re.compile("".join(out)), table

    def on(self, runs: Runs) -> Callable[[Runs, int, int, list[int]], None]:
        """The pass, for one text."""
        pattern, table = self._compiled
        classes = table[runs.codes].tobytes().decode("latin-1")
        find = pattern.finditer

        def cut(runs: Runs, a: int, b: int, ends: list[int]) -> None:
            for match in find(classes, a, b):
                start, end = match.span()
                if start > a:
                    ends.append(start)
                if end > start:
                    ends.append(end)
                a = end
            if a < b:
                ends.append(b)

        return cut


class _Parser:
    """An expression as parts: sets of code points, and what `re` reads as it is."""

    def __init__(self, source: str) -> None:
        self._text = source
        self._at = 0

    def parts(self) -> list[str | Mask]:
        out: list[str | Mask] = []
        while self._at < len(self._text):
            c = self._text[self._at]
            if c == "[":
                out.append(self._set())
            elif c == "\\":
                out.append(self._escape())
            elif c == "(" and self._text.startswith("(?", self._at):
                end = self._at + (4 if self._text.startswith("(?i:", self._at) else 3)
                out.append(self._text[self._at : end])
                self._at = end
            elif c == "{":
                end = self._text.index("}", self._at) + 1
                out.append(self._text[self._at : end])
                self._at = end
            else:
                self._at += 1
                ascii_or_operator = c in "()|?*+$" or ord(c) < 0x80
                out.append(c if ascii_or_operator else _points(ord(c), ord(c)))
        return out

    def _set(self) -> Mask:
        """`[…]`, with ranges, properties and `&&[^…]`."""
        text = self._text
        self._at += 1
        negated = text[self._at] == "^"
        self._at += negated
        found = np.zeros(_ALL, np.bool_)
        first = True
        while first or text[self._at] != "]":
            first = False
            if text.startswith("&&", self._at):
                self._at += 2
                found &= self._set()
                continue
            if text[self._at] == "\\":
                part = self._escape()
                if not isinstance(part, str):
                    found |= part
                    continue
                low = part[-1]
            else:
                low = text[self._at]
                self._at += 1
            high = low
            if text[self._at] == "-" and text[self._at + 1] != "]":
                self._at += 1
                if text[self._at] == "\\":
                    self._at += 1
                high = text[self._at]
                self._at += 1
            found |= _points(ord(low), ord(high))
        self._at += 1
        return ~found if negated else found

    def _escape(self) -> str | Mask:
        text = self._text
        c = text[self._at + 1]
        if c == "p":
            end = text.index("}", self._at)
            name = text[self._at + 3 : end]
            self._at = end + 1
            return _property(name)
        self._at += 2
        if c in "sSd":
            found = category("Nd" if c == "d" else "W")
            return ~found if c == "S" else found
        return re.escape(_ESCAPES.get(c, c))


def _points(low: int, high: int) -> Mask:
    found = np.zeros(_ALL, np.bool_)
    found[low : high + 1] = True
    return found


def _property(name: str) -> Mask:
    if name == "Lo":
        found = category("L").copy()
        for other in ("Lu", "Ll", "Lt", "Lm"):
            found &= ~category(other)
        return found
    if name == "Han":
        found = np.zeros(_ALL, np.bool_)
        for item in _HAN.split():
            first, _, last = item.partition("-")
            found[int(first, 16) : int(last or first, 16) + 1] = True
        return found
    return category(name)
