"""A reply as it comes, told apart: what is said, what was reasoned, and which tools are called.

The events of a beginning of a reply are a beginning of the events of the reply, wherever it is cut:
what may still become a tag or a call is held back until that is known. A call that cannot be read is
text, as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from gguf_runtime.text.reply import calls
from gguf_runtime.text.reply.calls import ToolCall, Tools
from gguf_runtime.text.reply.formats import Format, Reader, Think, find
from gguf_runtime.text.reply.messages import PARAGRAPH, functionary, harmony
from gguf_runtime.text.reply.source import Reading, Source, Unreadable, tail

Event = tuple[str, Any]

MARK = "\ufdd0"  # stands before a tag that came as a token of its own


@dataclass(slots=True)
class Reply:
    """A whole reply; `tool_calls` are dicts of name, arguments and, where the format has it, id."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)


class ReplyParser:
    """Reads a reply piece by piece.

    Args:
        template: the model's chat template, or the name of a family of replies ("qwen_hermes").
        tools: the tools that the model was told of, as JSON schemas; without tools nothing is a call.
        thinking: False: the model was asked not to reason, so a reply does not start in reasoning.
        starts_in_reasoning: the prompt ended with the tag that opens the reasoning.
        marked: tags that are fed with MARK before them, and are tags only then.

    Attributes:
        in_reasoning: what comes next is reasoning.
        unreadable: calls that were begun and could not be read.
        forced: the caller ended the reasoning, so a tag that ends it later says nothing.
    """

    def __init__(
        self,
        template: str | Format,
        tools: Iterable[Any] | None = None,
        thinking: bool = True,
        starts_in_reasoning: bool = False,
        *,
        marked: Collection[str] = (),
    ) -> None:
        self.format = template if isinstance(template, Format) else find(template)
        self.in_reasoning = starts_in_reasoning and thinking and self.format.reasons
        self.unreadable = 0
        self.forced = False
        self._reply = Reply()
        self._tools = Tools(tools or ())
        self._calls = self.format.calls if tools else {}
        self._marked = frozenset(marked)
        self.source = Source()
        self._events: list[Event] = []
        self.said = _Said("text", self._events, trailing=not self._has_calls(bool(tools)))
        self.thought = _Said("reasoning", self._events)
        self._fresh = True  # nothing was said since the beginning, a block or a call
        self._given = 0  # where the text begins that no call was made of
        self._running: Reading[None] | None = self._flow(bool(tools))
        self._run()

    def feed(self, text: str) -> list[Event]:
        """The events that this text completes: ("text", str), ("reasoning", str), ("tool", ToolCall)."""
        self.source.text += text
        return self._run()

    def close(self) -> list[Event]:
        """The last events; nothing can be fed behind them."""
        self.source.ended = True
        events = self._run()
        self.said.end()
        return events + self._taken()

    def finish(self) -> Reply:
        """The whole reply."""
        self.close()
        return self._reply

    def _has_calls(self, tools: bool) -> bool:
        return tools and (bool(self.format.calls) or self.format.flow != "plain")

    def _run(self) -> list[Event]:
        if self._running is not None:
            try:
                next(self._running)
            except StopIteration:
                self._running = None
        return self._taken()

    def _taken(self) -> list[Event]:
        events = self._events[:]
        self._events.clear()
        for kind, value in events:
            if kind == "text":
                self._reply.content += value
            elif kind == "reasoning":
                self._reply.reasoning += value
            else:
                self._reply.tool_calls.append(value)
        return events

    def _flow(self, tools: bool) -> Reading[None]:
        if self.format.flow == "harmony":
            return harmony(self, tools)
        if self.format.flow == "functionary":
            return functionary(self, tools)
        return self.tagged(tools)

    # ---- what readers tell ---------------------------------------------------------------------

    def say(self, text: str) -> None:
        """This is content."""
        if self.said.add(self.plain(text)):
            self._fresh = False

    def think(self, text: str) -> None:
        """This is reasoning."""
        self.thought.add(self.plain(text))

    def give(self, call: ToolCall) -> None:
        """This call is complete."""
        self.said.skip()
        self._fresh = True
        self._events.append(("tool", call))
        self._given = self.source.at

    def plain(self, text: str) -> str:
        """Text without marks."""
        return text.replace(MARK, "") if self._marked else text

    def tag(self, word: str) -> str:
        """How a tag stands in the text that is fed."""
        return MARK + word if word in self._marked else word

    # ---- tags in a text ------------------------------------------------------------------------

    def tagged(self, tools: bool) -> Reading[None]:
        """A text with tags in it."""
        source, fmt = self.source, self.format
        opens = {self.tag(t.open): t for t in fmt.think}
        closes = {self.tag(t.close) for t in fmt.think}
        readers = {self.tag(w): r for w, r in self._calls.items()}
        dropped = {self.tag(w) for w in fmt.dropped}
        answer = [self.tag(w) for w in fmt.answer or ()]
        words = tuple({**opens, **dict.fromkeys((*closes, *readers, *dropped, *answer))})
        pattern = re.compile("|".join(map(re.escape, words)))
        if self.in_reasoning:
            yield from self._reason(fmt.think)
        elif fmt.object and tools:
            yield from self._object()
        while True:
            found = pattern.search(source.text, source.at) if words else None
            end = found.start() if found else tail(source.text, words)
            if end > source.at:
                self.say(source.text[source.at : end])
            source.at = end if found is None else found.end()
            if found is None:
                if source.ended:
                    self.say(source.text[source.at :])
                    return
                source.cut()
                yield
                continue
            word = found[0]
            marked = word.startswith(MARK)
            if word in opens and (self._fresh or marked):
                yield from self._reason((opens[word],), opens[word].channel)
            elif word in readers:
                yield from self._call(readers[word], found.start(), word)
            elif (
                word in dropped
                or (word in closes and (marked or self.forced or self._fresh))
                or (word in answer and (marked or (self._fresh and not self.said.begun)))
            ):
                self.said.skip()
            elif word in answer[1:]:
                yield from self._last(word)
            else:
                self.say(word)

    def _last(self, word: str) -> Reading[None]:
        """A word that says nothing where it ends the reply."""
        source, start = self.source, self.source.at
        yield from source.spaces()
        if (yield from source.peek()):
            source.at = start
            self.say(word)

    def _call(self, reader: Reader, start: int, word: str) -> Reading[None]:
        source = self.source
        self._given = start
        try:
            yield from reader(source, self.give, self._tools)
        except Unreadable:
            self.unreadable += 1
            source.at = self._given
            if source.at == start:
                self.say(word)
                source.at += len(word)

    def _object(self) -> Reading[None]:
        """A reply that begins with a JSON object."""
        source = self.source
        yield from source.spaces()
        if (yield from source.peek()) == "{":
            try:
                yield from calls.llama(source, self.give)
                return
            except Unreadable:
                pass
        source.at = 0

    def _reason(self, blocks: tuple[Think, ...], channel: bool = False) -> Reading[None]:
        """A block of reasoning, of one of these kinds; `channel`: its name comes first."""
        source = self.source
        opening = tuple(self.tag(think.open) for think in blocks)
        closing = tuple(self.tag(think.close) for think in blocks)
        self.in_reasoning = True
        self.said.skip()
        self.thought.skip(PARAGRAPH)
        yield from source.spaces()
        for word in opening:  # some models repeat what the prompt ended with
            if (yield from source.comes(word)):
                break
        if channel:
            yield from self._name()
        words = (*closing, *(word for word in opening if word.startswith(MARK)))
        while self.in_reasoning:
            hits = [(i, w) for w in words if (i := source.text.find(w, source.at)) >= 0]
            end, word = min(hits) if hits else (tail(source.text, words), "")
            if source.ended and not word:
                end = len(source.text)
            if end > source.at:
                self.think(source.text[source.at : end])
            source.at = max(source.at, end) + len(word)
            if word in closing:
                self.in_reasoning = False
            elif not word:
                if source.ended:
                    return
                source.cut()
                yield
        self._fresh = True

    def _name(self) -> Reading[None]:
        """The name of a channel, to the end of its line."""
        source = self.source
        while (c := (yield from source.peek())) and (c.isalpha() or c == "_"):
            source.at += 1


class _Said:
    """Events of one kind, white space at the edges left out where something was taken out there."""

    def __init__(self, kind: str, events: list[Event], trailing: bool = False) -> None:
        self._kind, self._events = kind, events
        self._trailing = trailing  # white space at the end belongs to the text, whatever follows
        self._space = ""
        self._skipped = kind != "text"
        self.begun = False

    def add(self, text: str) -> bool:
        """More of it; whether it holds more than white space."""
        body = text.rstrip()
        if not body:
            self._space += text
            if self._trailing and self.begun and not self._skipped:
                self._give("")
            return False
        space = text[len(body) :]
        if self._skipped and not self.begun:
            self._space, body = "", body.lstrip()
        self.begun, self._skipped = True, False
        self._give(body)
        self._space = space
        if self._trailing and space:
            self._give("")
        return True

    def skip(self, space: str = "") -> None:
        """Something was taken out here; `space` parts what follows from what was."""
        self._skipped = True
        if space:
            self._space = space

    def end(self) -> None:
        """White space at the end, where nothing was taken out."""
        if self._space and not self._skipped:
            self._give("")

    def _give(self, text: str) -> None:
        text, self._space = self._space + text, ""
        if text:
            self._events.append((self._kind, text))
