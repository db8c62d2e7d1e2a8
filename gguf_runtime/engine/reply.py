"""Tokens of an answer, told apart: what is said, what was reasoned, and which tools are called.

Tags that are tokens of their own are recognized by their ids, so an answer may spell them and stays
text. A model whose template knows neither reasoning nor, where tools are given, calls has no `Style`
and pays nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gguf_runtime.text.detokenizer import Detokenizer
from gguf_runtime.text.reply import Event, Format, ReplyParser
from gguf_runtime.text.reply.calls import WORDS
from gguf_runtime.text.reply.formats import Think
from gguf_runtime.text.reply.parser import MARK
from gguf_runtime.text.stops import StopMatcher

if TYPE_CHECKING:
    from gguf_runtime.text.tokenizer import Tokenizer

TAIL = 64  # bytes in which a tag is looked for; no tag is longer
ID_LENGTH = 9  # of a call, as Mistral's templates demand


@dataclass(frozen=True, slots=True)
class Style:
    """How replies to one prompt are to be read.

    inside   the prompt ends inside the reasoning
    tags     what to feed for tokens that are tags; MARK before those that change what follows
    budget   tokens of reasoning, after which `forced` ends it
    """

    format: Format
    tools: tuple[Any, ...] = ()
    inside: bool = False
    tags: Mapping[int, str] = field(default_factory=dict)
    budget: int | None = None
    forced: tuple[int, ...] = ()

    def parser(self) -> ReplyParser:
        """A parser for one reply."""
        marked = [tag[1:] for tag in self.tags.values() if tag.startswith(MARK)]
        return ReplyParser(
            self.format, self.tools or None, starts_in_reasoning=self.inside, marked=marked
        )


def style_of(
    tokenizer: Tokenizer,
    form: Format,
    rendered: str,
    tools: Sequence[Any] = (),
    budget: int | None = None,
) -> Style | None:
    """The style of replies to a rendered prompt; None where a reply is nothing but text."""
    calls = bool(tools) and (bool(form.calls) or form.flow != "plain")
    if not (form.reasons or form.dropped or calls or form.flow != "plain"):
        return None
    tags: dict[int, str] = {}
    if calls:
        tags = {i: w for w in WORDS if (i := tokenizer.token(w)) is not None}
    for word in form.switches:
        if (calls or word not in form.calls) and (i := tokenizer.token(word)) is not None:
            tags[i] = MARK + word
    end = rendered.rstrip()
    inside = any(end.endswith(think.open) for think in form.think)
    forced: Sequence[int] = ()
    if budget is not None and form.reasons:
        forced = tokenizer.encode_segments([(opened(form, rendered).forced, True)])
    return Style(form, tuple(tools), inside, tags, budget, tuple(forced))


def opened(form: Format, rendered: str) -> Think:
    """The kind of block that a prompt opens, or that the model writes."""
    end = rendered.rstrip()
    return next((think for think in form.think if end.endswith(think.open)), form.think[0])


class Reader:
    """Ids in, events out: ("text", str), ("reasoning", str), ("tool", ToolCall).

    Stop strings are looked for in the text alone; `found` is the one that ended it.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], style: Style | None) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops)
        self._parser = style.parser() if style is not None else None
        self._tags = style.tags if style is not None else {}
        self._budget = style.budget if style is not None else None
        self.reasoning = 0  # tokens between the tags, those that ended it by force left out
        self._spent()

    @property
    def found(self) -> str | None:
        """The stop string that was met."""
        return self._matcher.found

    @property
    def unreadable(self) -> int:
        """Calls that were begun and could not be read."""
        return self._parser.unreadable if self._parser is not None else 0

    def feed(self, token: int) -> list[Event]:
        """What this token completes."""
        parser = self._parser
        if parser is None:
            text = self._matcher.feed(self._detokenizer.feed(token))
            return [("text", text)] if text else []
        tag = self._tags.get(token)
        if tag is None:
            text = self._detokenizer.feed(token)
            if MARK in text:
                text = text.replace(MARK, "\ufffd")
        else:
            text = self._detokenizer.flush() + tag
        inside = parser.in_reasoning
        events = parser.feed(text) if text else []
        if inside and parser.in_reasoning and not self._spent():
            self.reasoning += 1
        self._spent()
        return self._matched(events)

    def _spent(self) -> bool:
        """Whether the budget is used up; then an end tag follows, and another may."""
        parser = self._parser
        if parser is None or self._budget is None or self.reasoning < self._budget:
            return False
        parser.forced = parser.forced or parser.in_reasoning
        return True

    def flush(self) -> list[Event]:
        """What was held back, at the end."""
        rest = self._detokenizer.flush()
        if self._parser is None:
            text = self._matcher.feed(rest) + self._matcher.flush()
            return [("text", text)] if text else []
        events = self._matched(self._parser.feed(rest) + self._parser.close())
        if self._matcher.found is None and (text := self._matcher.flush()):
            events.append(("text", text))
        return events

    def _matched(self, events: list[Event]) -> list[Event]:
        """The events up to a stop string in their text."""
        out: list[Event] = []
        for kind, value in events:
            if self._matcher.found is not None:
                break
            if kind == "text":
                value = self._matcher.feed(value)
                if value:
                    out.append((kind, value))
                continue
            if held := self._matcher.flush():  # no stop string goes on behind a call
                out.append(("text", held))
            out.append((kind, value))
        return out


class Budget:
    """Ends the reasoning of an answer after so many tokens; a function of the answer's ids alone.

    It sees what the parser sees: a tag opens a block as a token of its own, or spelled out where
    nothing was said yet.
    """

    def __init__(self, style: Style, tokenizer: Tokenizer) -> None:
        self._limit = style.budget if style.budget is not None else -1
        self._forced = list(style.forced)
        self._opens = [t.open.encode() for t in style.format.think]
        self._closes = [t.close.encode() for t in style.format.think]
        self._tokenizer = tokenizer
        # Ids looked at, inside, tokens between tags, the last bytes, and where the end was forced.
        self._state: tuple[int, bool, int, bytes, int] = (0, style.inside, 0, b"", -1)

    def forced(self, answer: Sequence[int]) -> list[int]:
        """What has to follow these ids: nothing, or (the rest of) the end tag."""
        seen, inside, count, tail, since = self._state
        while True:
            if since < 0 and inside and count >= self._limit:
                since = seen
            if since >= 0:
                if len(answer) < since + len(self._forced):
                    break
                seen, inside, tail, since = since + len(self._forced), False, b"", -1
            if seen >= len(answer):
                break
            piece = self._tokenizer.piece(answer[seen], special=True)
            seen += 1
            tail += piece
            if inside:
                tail = tail[-TAIL:]
                inside = not any(tag in tail for tag in self._closes)
                count += inside
                tail = tail if inside else b""
            elif piece in self._opens or any(tail.lstrip().startswith(t) for t in self._opens):
                inside, tail = True, b""
            elif len(tail) > TAIL:  # something was said
                tail = tail[:TAIL]
        self._state = seen, inside, count, tail, since
        return self._forced[len(answer) - since :] if since >= 0 else []


def call_id(seed: int, n_prompt: int, k: int) -> str:
    """An id for the k-th call of an answer whose format has none; the same whenever it is repeated."""
    digest = hashlib.sha256(f"{seed}:{n_prompt}:{k}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:ID_LENGTH]
