"""What happens where the context is too small: an error, an end, or a shorter prompt.

`trim` drops whole turns, the oldest first, and keeps the system message, the first turn and the last; of a
raw text it drops the oldest tokens. What is dropped is told in a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gguf_runtime.engine.completion import Notice
from gguf_runtime.errors import RequestError, show

OnOverflow = Literal["stop", "error", "trim"]
CHOICES = ("stop", "error", "trim")
ROOM = 8  # this part of the context is left free behind a trimmed prompt, where turns allow it
TRIMMED = "trimmed"  # the code of what is said
FIRST = ("system", "developer")

Messages = Sequence[Mapping[str, Any]]


def checked(value: Any) -> OnOverflow:
    """One of the three; RequestError for anything else."""
    if value not in CHOICES:
        raise RequestError(
            "on_overflow is outside its choices", expected=", ".join(CHOICES), got=show(value)
        )
    chosen: OnOverflow = value
    return chosen


def too_long(n: int, limit: int) -> RequestError:
    """A prompt of n tokens that a context does not hold."""
    return RequestError(
        "the prompt is longer than the context",
        expected=f"at most {limit:,} tokens",
        got=f"{n:,}, {n - limit:,} too many",
        hint="use a larger context (-c N) or a shorter prompt",
    )


def full(limit: int) -> RequestError:
    """The context filled while answering, and that was to fail."""
    return RequestError(
        "the context is full before the answer ended",
        got=f"{limit:,} tokens",
        hint="ask for more with -c N, or take what fits with --on-overflow stop",
    )


class Trimmer:
    """Makes one prompt shorter.

    Args:
        ids: the whole prompt.
        limit: positions of the context.
        turns: its messages; empty for a raw text.
        render: messages to ids.
        keep: tokens at the beginning of a raw text that stay.
    """

    def __init__(
        self,
        ids: Sequence[int],
        limit: int,
        turns: Messages = (),
        render: Callable[[Messages], list[int]] | None = None,
        keep: int = 0,
    ) -> None:
        self._ids, self._limit, self._keep = list(ids), limit, keep
        self._render = render
        self._turns = split(turns)
        self._dropped = 0
        self.notices: list[Notice] = []

    def fit(self) -> list[int]:
        """The prompt, as short as it has to be; RequestError where it cannot be short enough."""
        if len(self._ids) <= self._limit:
            return self._ids
        found = self._shorter(0)
        if found is None:
            raise too_long(len(self._ids), self._limit)
        return found

    def behind(self, answer: Sequence[int]) -> list[int] | None:
        """Prompt and answer so far, with room for more; None where nothing more can be dropped."""
        found = self._shorter(len(answer))
        return None if found is None else [*found, *answer]

    def _shorter(self, n_answer: int) -> list[int] | None:
        for spare in (self._limit // ROOM, 1 if n_answer else 0):
            most = self._limit - n_answer - spare
            found = self._text(most) if self._render is None else self._conversation(most)
            if found is not None:
                return found
        return None

    def _text(self, most: int) -> list[int] | None:
        """The beginning that stays, and the end of a raw text."""
        if not self._keep < most < len(self._ids):
            return None
        n, before = len(self._ids), self._ids
        self._ids = [*before[: self._keep], *before[n - most + self._keep :]]
        self._say(f"{n - most:,} tokens of the prompt were", n)
        return self._ids

    def _conversation(self, most: int) -> list[int] | None:
        """The fewest turns dropped that are enough."""
        assert self._render is not None
        head, first, *rest = self._turns
        low, high = self._dropped + 1, len(rest) - 1
        best: list[int] | None = None
        while low <= high:
            middle = (low + high) // 2
            kept = [*head, *first, *(m for turn in rest[middle:] for m in turn)]
            ids = self._render(kept)
            if len(ids) <= most:
                best, n, high = ids, middle, middle - 1
            else:
                low = middle + 1
        if best is None:
            return None
        before, self._ids = len(self._ids), best
        new, self._dropped = n - self._dropped, n
        self._say(f"{new:,} of the oldest turns {'was' if new == 1 else 'were'}", before)
        return best

    def _say(self, what: str, before: int) -> None:
        message = f"{what} dropped to fit the context: {before:,} tokens became {len(self._ids):,}"
        self.notices.append(Notice(TRIMMED, message))


def split(messages: Messages) -> list[list[Mapping[str, Any]]]:
    """System messages first, then turns: each begins with a user's message."""
    head: list[Mapping[str, Any]] = []
    turns: list[list[Mapping[str, Any]]] = []
    for m in messages:
        if not turns and m.get("role") in FIRST:
            head.append(m)
        elif m.get("role") == "user" or not turns:
            turns.append([m])
        else:
            turns[-1].append(m)
    return [head, *(turns or [[]])]


class Later:
    """A budget of reasoning for what follows an answer's beginning."""

    def __init__(self, budget: Any, answer: Sequence[int]) -> None:
        self._budget, self._answer = budget, list(answer)

    def forced(self, answer: Sequence[int]) -> list[int]:
        """What has to follow these ids."""
        found: list[int] = self._budget.forced([*self._answer, *answer])
        return found
