"""Holds one answer to a constraint: which tokens may come, which must, and how to end in time.

A function of the answer's ids alone, like all that a job keeps: an exception may strike anywhere.
Reasoning before the answer is free. Text that the constraint forces is taken without asking the
model. Near the last token only what still leads to a whole text is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gguf_runtime.errors import RequestError
from gguf_runtime.text.constraint.api import U8, Constraint, mask_of
from gguf_runtime.text.constraint.closing import shortest
from gguf_runtime.text.constraint.vocabulary import bytes_alone, vocabulary_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from gguf_runtime.engine.reply import Style
    from gguf_runtime.text.tokenizer import Tokenizer

TAIL = 64  # bytes in which the end of reasoning is looked for
GROWTH = 32  # tokens by which one token may make the way to the end longer, and the shortest text


class _State:
    """A matcher, and how many tokens of the answer it has read."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher
        self.read: list[int] = []

    def follow(self, ids: Sequence[int], pieces: Any = None) -> LLMatcher:
        """The matcher, behind these tokens; `pieces` turns a token into what it reads."""
        n = len(self.read)
        if self.read != list(ids[:n]):
            self.matcher.reset()
            self.read, n = [], 0
        for i in ids[n:]:
            self.matcher.consume_tokens([i] if pieces is None else list(pieces(i)))
            self.read.append(i)
        return self.matcher


class Guide:
    """A constraint on the tokens of one answer.

    Attributes:
        need: tokens of the shortest whole text that was found.
    """

    def __init__(
        self, constraint: Constraint, tokenizer: Tokenizer, style: Style | None = None
    ) -> None:
        self._constraint, self._tokenizer = constraint, tokenizer
        self._vocabulary = vocabulary_of(tokenizer)
        self._state = _State(constraint.matcher(self._vocabulary))
        self._bytes = _State(constraint.matcher(bytes_alone()))
        self._limit = -1
        self._look = 0  # length of the answer from which on the way to the end is looked for
        self._reasons = style is not None and style.format.reasons
        self._inside = style is not None and style.inside
        self._open: int | None = None
        self._closes: list[bytes] = []
        self._close: list[int] = []
        if style is not None and style.format.reasons:
            think = style.format.think
            self._closes = [t.close.encode() for t in think]
            self._close = tokenizer.encode_segments([(think[0].close, True)])
            if not self._inside:
                self._open = tokenizer.token(think[0].open)
        # Where the constrained text begins, -1: not yet; how many ids were looked at; the last bytes.
        self._where: tuple[int, int, bytes] = (-1, 0, b"")
        self.need = len(self._vocabulary.spell(constraint.shortest or b""))

    def limit(self, tokens: int) -> None:
        """The answer has at most so many tokens; RequestError if no whole text is so short."""
        least = self.need + (len(self._close) if self._inside else 0)
        if 0 < tokens < least:
            raise RequestError(
                "the answer cannot be whole with so few tokens",
                where="max_tokens",
                expected=f"at least {least:,}, for the shortest text that the constraint allows",
                got=f"{tokens:,}",
            )
        self._limit = tokens
        self._look = max(0, (tokens - self.need) // (self.need + GROWTH))

    # ---- what may come -------------------------------------------------------------------------

    def mask(self, answer: Sequence[int]) -> U8 | None:
        """Bits of the tokens that may follow; None: all."""
        begin = self._begin(answer)
        if begin < 0:
            return None
        bits = mask_of(self._state.follow(answer[begin:]), self._vocabulary)
        if not answer and self._open is not None:
            bits[self._open >> 3] |= 1 << (self._open & 7)
        return bits

    def forced(self, answer: Sequence[int]) -> list[int]:
        """Tokens that must follow, nothing where there is a choice."""
        begin = self._begin(answer)
        if begin < 0:
            late = self._limit - self.need - len(self._close)
            return self._close[len(answer) - late :] if len(answer) >= late else []
        if not answer and self._open is not None:
            return []
        matcher = self._state.follow(answer[begin:])
        return list(matcher.compute_ff_tokens())

    def whole(self, answer: Sequence[int]) -> bool:
        """Whether the text is complete and nothing may follow."""
        begin = self._begin(answer)
        if begin < 0 or (not answer and self._open is not None):
            return False
        matcher = self._state.follow(answer[begin:])
        return bool(matcher.is_accepting() and matcher.is_stopped())

    # ---- the end in time -----------------------------------------------------------------------

    def settle(self, answer: Sequence[int], token: int) -> int | None:
        """The token to take behind the answer: this one, or one that leads to the end while there is time.

        None: the text is whole, and ends.
        """
        if len(answer) < self._look or self._begin(answer) < 0:
            return token
        if token in self._vocabulary.end_ids:
            return token
        after = [*answer, token]
        begin = self._begin(after)
        if begin < 0:
            return token
        way = self._way(after[begin:])
        left = self._limit - len(after)
        if way is not None and len(way) <= left:
            self._look = len(after) + (left - len(way)) // (self.need + GROWTH)
            return token
        way = self._way(answer[begin:])
        if not way:
            return None if way is not None else token
        return way[0]

    def _way(self, ids: Sequence[int]) -> list[int] | None:
        """Tokens that make the text behind these whole, soon."""
        matcher = self._bytes.follow(ids, lambda i: self._tokenizer.piece(i, special=True))
        constraint = self._constraint
        text = shortest(matcher, constraint.examples, constraint.kind == "schema")
        return None if text is None else self._vocabulary.spell(text)

    # ---- where the constrained text begins -----------------------------------------------------

    def _begin(self, answer: Sequence[int]) -> int:
        """Index of the first token that the constraint holds for; -1 while the model reasons."""
        if not self._reasons:
            return 0
        if not self._inside and (not answer or answer[0] != self._open):
            return 0
        begin, seen, tail = self._where
        if 0 <= begin <= len(answer):
            return begin
        if begin > len(answer) or seen > len(answer):
            begin, seen, tail = -1, 0, b""
        while begin < 0 and seen < len(answer):
            tail = (tail + self._tokenizer.piece(answer[seen], special=True))[-TAIL:]
            seen += 1
            if any(tag in tail for tag in self._closes):
                begin = seen
        self._where = begin, seen, tail
        return begin
