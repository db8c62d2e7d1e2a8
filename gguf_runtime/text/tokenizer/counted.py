"""Passes of pre-tokenizers that count from the right: as expressions they would take quadratic time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gguf_runtime.text.tokenizer import published
from gguf_runtime.text.tokenizer.classes import LETTER, MARK, NUMBER, SPACE, Runs, category


def decimal_threes(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""\d{1,3}(?=(?:\d{3})*\b): runs of digits in threes from the right, unless a word goes on behind."""
    inside = category("Nd")[runs.codes[a:b]]
    word = inside | np.isin(runs.classes[a:b], (LETTER, MARK)) | (runs.codes[a:b] == ord("_"))
    edges = (np.flatnonzero(inside[1:] != inside[:-1]) + a + 1).tolist()
    start = done = a
    for stop in [*edges, b]:
        if inside[start - a] and (stop == b or not word[stop - a]):
            if done < start:
                ends.append(start)
            ends.extend(range(start + ((stop - start) % 3 or 3), stop + 1, 3))
            done = stop
        start = stop
    if done < b:
        ends.append(b)


def before_threes(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""(?=(\d{3})+(?!\d)): cuts before every three ASCII digits, counted from the right."""
    digit = (runs.codes[a:b] >= ord("0")) & (runs.codes[a:b] <= ord("9"))
    edges = (np.flatnonzero(digit[1:] != digit[:-1]) + a + 1).tolist()
    start = a
    for stop in [*edges, b]:
        if digit[start - a]:
            first = start + (stop - start) % 3
            ends.extend(at for at in range(first, stop, 3) if at > a)
        start = stop
    ends.append(b)


def glued_threes(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""Runs of \p{N} in threes from the right; what stands before one is a word with its first group."""
    kind, end = runs.kind, runs.end
    i = done = a
    while i < b:
        stop = min(end[i], b)
        if kind[i] == NUMBER:
            ends.extend(range(i + ((stop - i) % 3 or 3), stop + 1, 3))
            done = stop
        i = stop
    if done < b:
        ends.append(b)


def spaces_at_end(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""\s+$"""
    start = b
    while start > a and runs.kind[start - 1] == SPACE:
        start -= 1
    if a < start < b:
        ends.append(start)
    ends.append(b)


FUNCTIONS: dict[str, Callable[[Runs, int, int, list[int]], None]] = {
    published.ASCII_THREES: before_threes,
    published.DECIMAL_THREES: decimal_threes,
    published.GLUED_THREES: glued_threes,
    published.SPACES_AT_END: spaces_at_end,
}
