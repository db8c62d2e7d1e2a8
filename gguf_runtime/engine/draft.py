"""Guessing ahead from the text so far: what followed the last tokens when they stood there before.

Drafts are verified in one flat batch and accepted only where the sample drawn at that position is
the same token, so the text does not depend on them. They pay where a text repeats itself (code,
quotations, lists), and the more the longer the piece that was found: so for every length of it the
share of right guesses is counted, also of guesses that were not verified, which costs nothing.
With what steps take, as measured, that tells how many tokens to guess, or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

LONGEST, SHORTEST = 8, 2  # tokens that must agree before a guess
CANDIDATES = 16  # places that are looked at, the newest first
WIDTHS = (0, 3, 7)  # tokens of a draft: with the last token one or two register tiles of four
WIDE = WIDTHS[-1]
SEEN = 3  # tokens of a guess by which it is judged
MARGIN = 1.15  # a draft must be faster than single steps by this factor
WEIGHT = 0.2  # of the newest time in a moving mean
LESSON = 0.06  # of the newest guess in the share of right ones
FADING = 0.0001  # by how much a step forgets what wide ones took, so that they are tried again

# Share of right tokens by how many agreed before, from answers of SmolLM2 and Gemma 3.
RIGHT = (0.0, 0.0, 0.45, 0.55, 0.62, 0.65, 0.68, 0.72, 0.9)
TAKES = (1.0, 1.4, 2.0)  # what a step of 1, 4 and 8 tokens takes, until it was measured


class Pace:
    """What steps of a model take on this machine; one for all its sequences."""

    def __init__(self) -> None:
        self._single = 0.0  # seconds of a step of one token, moving mean
        self._takes = list(TAKES)  # of steps with drafts, in steps of one token

    def took(self, drafted: int, seconds: float) -> None:
        """A step with so many tokens drafted took so long."""
        if not drafted:
            self._single = _mean(self._single, seconds) if self._single else seconds
            for k in range(1, len(WIDTHS)):
                self._takes[k] = _mean(self._takes[k], TAKES[k], FADING)
        elif self._single:
            k = 1 if drafted <= WIDTHS[1] else 2
            self._takes[k] = _mean(self._takes[k], seconds / self._single)

    def width(self, right: float) -> int:
        """How many tokens to guess where this share of them is right."""
        best, found = MARGIN, 0
        if self._single == 0.0:  # there must be something to compare with
            return found
        for width, takes in zip(WIDTHS[1:], self._takes[1:], strict=True):
            tokens = sum(right**k for k in range(width + 1))
            if tokens > best * takes:
                best, found = tokens / takes, width
        return found


class Lookup:
    """Drafts for one sequence."""

    def __init__(self, ids: Sequence[int] = (), pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self._ids: list[int] = []
        self._last: dict[tuple[int, int], int] = {}  # what followed two tokens, the newest place
        self._before: list[int] = []  # for each place the one before it in the same way, or -1
        self._right = list(RIGHT)
        self._guessed: deque[tuple[int, int, int]] = deque()  # agreed, place, for which position
        for i in ids:
            self.append(i)

    def __len__(self) -> int:
        """Tokens of the sequence so far."""
        return len(self._ids)

    def append(self, i: int) -> None:
        """One more token of the sequence."""
        ids = self._ids
        at = len(ids)
        place = -1
        if at >= SHORTEST:
            key = (ids[-2], ids[-1])
            place = self._last.get(key, -1)
            self._last[key] = at
        self._before.append(place)
        ids.append(i)

    def draft(self, most: int) -> list[int]:
        """What may follow, at most `most` tokens; often nothing."""
        self._learn()
        agreed, at = self._find()
        if not agreed:
            return []
        self._guessed.append((agreed, at, len(self._ids)))
        width = min(most, self.pace.width(self._right[agreed]))
        return self._ids[at : at + width] if width > 0 else []

    def took(self, drafted: int, seconds: float) -> None:
        """How long the step took that followed `draft`."""
        self.pace.took(drafted, seconds)

    def _find(self) -> tuple[int, int]:
        """How many of the last tokens stood elsewhere too, and what followed there; the newest best."""
        ids = self._ids
        best = found = 0
        at = self._last.get((ids[-2], ids[-1]), -1) if len(ids) >= SHORTEST else -1
        for _ in range(CANDIDATES):
            if at < 0:
                break
            n, most = SHORTEST, min(LONGEST, at)
            while n < most and ids[at - 1 - n] == ids[-1 - n]:
                n += 1
            if n > best:
                best, found = n, at
            if n == LONGEST:
                break
            at = self._before[at]
        return best, found

    def _learn(self) -> None:
        """Compare guesses with what has followed."""
        ids = self._ids
        while self._guessed and self._guessed[0][2] + SEEN <= len(ids):
            agreed, at, pos = self._guessed.popleft()
            for k in range(SEEN):
                right = ids[at + k] == ids[pos + k]
                self._right[agreed] = _mean(self._right[agreed], float(right), LESSON)
                if not right:
                    break


def _mean(old: float, new: float, weight: float = WEIGHT) -> float:
    return old + weight * (new - old)
