"""Texts as runs of characters of one kind: what the pre-tokenizers walk over.

A run's end is known from any position inside it, so every rule of a pre-tokenizer is a look-up and
no rule tries a second time: time is linear in the text whatever it holds.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

# Classes of code points; white space wins over the general category.
OTHER, LETTER, NUMBER, MARK, PUNCT, SYMBOL, SPACE = range(7)

_N_CODE_POINTS = 0x110000


@cache
def class_of_code_point() -> NDArray[np.uint8]:
    """(0x110000,) the class of every code point, from our own copy of Unicode 16."""
    from gguf_runtime.text.tokenizer.unicode_table import RANGES

    table = np.zeros(_N_CODE_POINTS, np.uint8)
    for name, value in zip("LNMPSW", (LETTER, NUMBER, MARK, PUNCT, SYMBOL, SPACE), strict=True):
        for item in RANGES[name].split():
            first, _, last = item.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = value
    return table


@cache
def category(name: str) -> NDArray[np.bool_]:
    """(0x110000,) whether a code point is of a category (L, N, M, P, S, Lu, Ll, Lt, Lm, Nd; W: white space)."""
    from gguf_runtime.text.tokenizer.unicode_table import RANGES

    found = np.zeros(_N_CODE_POINTS, np.bool_)
    for item in RANGES[name].split():
        first, _, last = item.partition("-")
        found[int(first, 16) : int(last or first, 16) + 1] = True
    return found


class Runs:
    """A text, the kind of each of its characters, and where runs of a kind end."""

    __slots__ = ("classes", "codes", "end", "kind", "text")

    def __init__(self, text: str, groups: bytes) -> None:
        """`groups[class]` is the kind that a class counts as."""
        self.text = text
        self.codes = code_points(text)
        self.classes = class_of_code_point()[self.codes]
        kind = np.frombuffer(groups, np.uint8)[self.classes]
        self.kind: bytes = kind.tobytes()  # (n,) kinds
        self.end = run_ends(kind).data  # (n,) int32, the end of the run around a position


def code_points(text: str) -> NDArray[np.uint32]:
    """(n,) code points; lone surrogates (bytes that are no UTF-8) stay what they are."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def run_ends(kind: NDArray[np.uint8]) -> NDArray[np.int32]:
    """(n,) for each position the end of the run of equal values around it."""
    ends = np.append(np.flatnonzero(kind[1:] != kind[:-1]) + 1, len(kind))[: len(kind)]
    return np.repeat(ends, np.diff(ends, prepend=0)).astype(np.int32)
