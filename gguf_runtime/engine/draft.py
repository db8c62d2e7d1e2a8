"""Guessing ahead from the text so far: what followed the last tokens when they stood there before.

Drafts are verified in one flat batch and accepted only where the sample drawn at that position is
the same token, so the text does not depend on them. They pay where a text repeats itself (code,
quotations, lists). A controller compares the time per token with and without them, and stops
guessing for a while, each time for longer, where they do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2  # tokens that must agree before a guess
NARROW, WIDE = 3, 7  # tokens of a draft: with the last token one or two register tiles of four
WEIGHT = 0.2  # of the newest figure in a moving mean
MARGIN = 1.02  # a draft must be faster than a single step by this factor
PAUSE, LONGEST_PAUSE = 16, 1024  # tokens without a guess


class Lookup:
    """Drafts for one sequence."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._ids: list[int] = []
        self._after: list[dict[tuple[int, ...], int]] = [{} for _ in range(SHORTEST, LONGEST + 1)]
        self._width = NARROW
        self._single = 0.0  # seconds of a step of one token, moving mean
        self._ahead = 0.0  # seconds per token of steps with drafts
        self._wait, self._pause = 0, PAUSE
        for i in ids:
            self.append(i)

    def append(self, i: int) -> None:
        """One more token of the sequence."""
        at = len(self._ids)
        self._ids.append(i)
        for n, table in enumerate(self._after, SHORTEST):
            if at >= n:  # the n tokens before this one are followed by it
                table[tuple(self._ids[at - n : at])] = at

    def draft(self, most: int) -> list[int]:
        """What may follow, at most `most` tokens; often nothing."""
        if self._wait > 0:
            self._wait -= 1
            return []
        if self._single == 0.0:  # there must be something to compare with
            return []
        for n in range(min(LONGEST, len(self._ids)), SHORTEST - 1, -1):
            at = self._after[n - SHORTEST].get(tuple(self._ids[-n:]))
            if at is not None:
                return self._ids[at : at + min(most, self._width)]
        return []

    def took(self, drafted: int, accepted: int, seconds: float) -> None:
        """How long a step took, and how many of its drafts were right."""
        if not drafted:
            self._single = _mean(self._single, seconds)
            return
        self._ahead = _mean(self._ahead, seconds / (accepted + 1))
        self._width = WIDE if accepted == drafted else NARROW
        if self._ahead * MARGIN > self._single:
            self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
            self._ahead = 0.0
        elif accepted == drafted:
            self._pause = PAUSE


def _mean(old: float, new: float) -> float:
    return new if old == 0.0 else old + WEIGHT * (new - old)
