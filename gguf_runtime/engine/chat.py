"""A conversation: messages, and the ids that were read for them, so that each turn reads only what is new.

A turn's prompt is what the template renders behind the text that was read already: earlier prompts and answers are never
tokenized again. What they left in the prefix tree is where the turn starts; where a template changes the past (drops old
reasoning, say), the longest common beginning of the ids. Between turns a conversation holds no memory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from gguf_runtime.engine.completion import Completion
from gguf_runtime.engine.messages import Message, write_messages
from gguf_runtime.engine.overflow import TRIMMED
from gguf_runtime.engine.prompt import Prompt, after
from gguf_runtime.engine.rounds import ROUNDS, Confirm, Rounds
from gguf_runtime.engine.stream import Stream
from gguf_runtime.engine.turn import NOTHING, Turn
from gguf_runtime.engine.turn import OPTIONS as TURN_OPTIONS
from gguf_runtime.errors import RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.engine.model import Model
    from gguf_runtime.engine.prompt import Segment
    from gguf_runtime.engine.tools import Toolbox


@dataclass(frozen=True, slots=True)
class _Place:
    """A point that the conversation has come to: its messages, as rendered, as read."""

    messages: list[Message]
    text: str
    ids: list[int]


class Chat:
    """Made by `Model.chat()`; `messages` is the conversation so far. For one thread at a time.

    `messages` may be changed between turns: what it then begins with is read again as far as needed.
    An answer that was stopped has the key `interrupted`.
    """

    def __init__(
        self,
        model: Model,
        system: str | None = None,
        messages: Sequence[Message] = (),
        *,
        tools: Any = (),
        confirm: Confirm | None = None,
        max_rounds: int = ROUNDS,
    ) -> None:
        model.backend.turn()  # refused where the model is closed
        self._model = model
        self._places: list[_Place] = []
        self._tools = toolbox(tools)
        self._confirm, self._max_rounds = confirm, max_rounds
        self._turn = NOTHING  # what was asked of the template last
        self._closed = False
        self._stream: ref[Stream | Rounds] | None = None
        self._asked: Message | None = None  # whose turn is not over
        self.messages: list[Message] = [dict(m) for m in messages]
        if system is not None:
            self.messages.insert(0, {"role": "system", "content": system})

    def send(self, text: str | None, **options: Any) -> Completion:
        """One turn, to its end. Options are those of `Model.complete`."""
        stream = self.stream(text, **options)
        for _ in stream:
            pass
        return stream.result

    def stream(
        self, text: str | None, *, events: bool = False, profile: bool = False, **options: Any
    ) -> Stream | Rounds:
        """One turn, as it comes; the answer before it is ended, if it was not.

        Without a text the conversation is answered as it stands: after the result of a tool, say.
        Tools of the conversation that are functions are called, and answers follow until none is.

        A turn that is stopped stays in the conversation with what it said, unless it was stopped
        before the message was read, or failed.

        Raises:
            RequestError: the conversation does not fit the context any more, or an option is
                wrong; the message is then not part of the conversation.
        """
        if text is not None and not isinstance(text, str):
            raise RequestError("a message is a text", got=show(text))
        self._refuse_closed()
        self._end_stream()
        if self._tools is not None:
            options.setdefault("tools", self._tools.schemas)
        turn = _turn(options)
        self._model.request(templated=True, **options)  # refused before anything is changed
        self._settle()
        calls = self._tools is not None
        first = self._ask(text, turn, options, events or calls, profile)
        stream: Stream | Rounds = first
        if self._tools is not None:
            stream = Rounds(
                first,
                lambda: self._ask(None, turn, options, True, profile),
                self.messages,
                self._tools,
                confirm=self._confirm,
                most=self._max_rounds,
                events=events,
            )
        self._stream = ref(stream)
        return stream

    def _ask(
        self, text: str | None, turn: Turn, options: dict[str, Any], events: bool, profile: bool
    ) -> Stream:
        """The stream of an answer to a message, or to the conversation as it stands."""
        self._asked = message = {"role": "user", "content": text}
        try:
            if text is not None:
                self.messages.append(message)
            return self._begin(message, turn, options, events, profile)
        except BaseException:
            self._settle()
            raise

    def undo(self) -> str:
        """Take back the last message and its answer; returns the message.

        What was read for it stays in the cache: asking the same again reads one token.

        Raises:
            RequestError: there is no message.
        """
        self._end_stream()
        self._settle()
        for k in reversed(range(len(self.messages))):
            if self.messages[k]["role"] == "user":
                text = self.messages[k]["content"]
                del self.messages[k:]
                return text if isinstance(text, str) else show(text)
        raise RequestError("there is no message to take back")

    def read(self, **options: Any) -> Completion:
        """Read the conversation now, so that the next turn need not: one from a file, for example.

        Options are those that the next turn will have.

        Returns:
            A Completion without text; `usage` and `timings` say what was read and how long it took.

        Raises:
            RequestError: there are no messages, or more than the context holds.
        """
        self._refuse_closed()
        self._end_stream()
        self._settle()
        self._turn = _turn(options)
        segments = self._segments()
        text, ids = "".join(t for t, _ in segments), self._encode(segments)
        self._fits(ids)
        request = self._model.request(templated=True, **{**options, "max_tokens": 0})
        session = self._model.session(request.reuse)
        messages = [dict(m) for m in self.messages]

        def finished(out: Completion) -> None:
            if session.ids == ids:
                self._places.append(_Place(messages, text, ids))
            session.close(keep=out.finish_reason != "error")

        stream = self._model.start(session, ids, request, finished)
        self._stream = ref(stream)
        for _ in stream:
            pass
        return stream.result

    @property
    def tokens(self) -> int:
        """Tokens of the conversation as it stands: what the next message is added to."""
        place = self._place()
        if place is not None and len(place.messages) == len(self.messages):
            return len(place.ids)
        return len(self._encode(self._segments())) if self.messages else 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the messages as JSON, whole or not at all; `Model.chat(load=path)` reads them."""
        self._end_stream()
        self._settle()
        write_messages(path, self.messages)

    def fork(self) -> Chat:
        """A conversation with the same past; an answer that is being given is ended first."""
        self._end_stream()
        self._settle()
        twin = object.__new__(Chat)
        twin._model, twin._closed = self._model, self._closed
        twin._places, twin._turn = list(self._places), self._turn
        twin._stream = twin._asked = None
        twin._tools, twin._confirm = self._tools, self._confirm
        twin._max_rounds = self._max_rounds
        twin.messages = [dict(m) for m in self.messages]
        return twin

    def close(self) -> None:
        """End an answer that is being given; no turn can follow."""
        self._end_stream()
        self._closed = True

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self._place()
        n_tokens = len(place.ids) if place is not None else 0
        return f"<Chat, {len(self.messages)} messages, {n_tokens:,} tokens>"

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RequestError("this conversation is closed")

    def _end_stream(self) -> None:
        stream = self._stream() if self._stream is not None else None
        if stream is not None:
            stream.close()

    def _settle(self) -> None:
        """Take out a turn that did not come to its end: Ctrl-C may strike between any two lines."""
        for k, message in enumerate(self.messages):
            if message is self._asked:
                del self.messages[k:]
                break
        self._asked = None

    def _place(self) -> _Place | None:
        """The last place from which the messages go on; later ones, which were undone, are let go."""
        while self._places:
            place = self._places[-1]
            if place.messages == self.messages[: len(place.messages)]:
                return place
            self._places.pop()
        return None

    def _segments(self) -> list[Segment]:
        """The conversation as rendered, without the opening of an answer."""
        prompter, turn = self._model.prompter, self._turn
        template = prompter.refuse_without_template()
        more = turn.variables(template, template.format)
        return prompter.segments(self.messages, **{**more, "add_generation_prompt": False})

    def _encode(self, segments: list[Segment]) -> list[int]:
        """Ids of the rendered conversation: those that were read before, and those of the rest."""
        prompter, place = self._model.prompter, self._place()
        if place is not None and "".join(text for text, _ in segments).startswith(place.text):
            rest = after(segments, len(place.text))
            return place.ids + (prompter.encode(rest, start=False) if rest else [])
        return prompter.encode(segments)

    def _fits(self, ids: list[int]) -> None:
        limit = self._model.context
        if len(ids) > limit:
            raise RequestError(
                "the conversation is longer than the context",
                expected=f"at most {limit:,} tokens",
                got=f"{len(ids):,}, {len(ids) - limit:,} too many",
                hint="start a new conversation, or use a larger context (-c N)",
            )

    def _begin(
        self, message: Message, turn: Turn, options: dict[str, Any], events: bool, profile: bool
    ) -> Stream:
        segments, style, notices = self._model.prompter.conversation(self.messages, turn)
        rendered, whole = "".join(text for text, _ in segments), self._encode(segments)
        request = self._model.request(templated=True, style=style, **options)
        trimmer = None
        if request.on_overflow == "trim":
            made = Prompt(whole, True, style, notices)
            prompter, limit = self._model.prompter, self._model.context
            whole, notices, trimmer = prompter.fitted(made, self.messages, turn, limit)
        self._fits(whole)
        session = self._model.session(request.reuse)

        def finished(out: Completion) -> None:
            read = session.ids[: len(whole)] == whole
            session.close(keep=out.finish_reason != "error")
            if self._asked is not message:  # taken out already
                return
            if out.finish_reason == "error" or not read:
                self._settle()
                return
            self.messages.append(_answer(out))
            # A stop string was cut off what is shown: then the next turn compares ids instead. So
            # it does where turns were left out of what was read; they stay in the conversation.
            trimmed = any(n.code == TRIMMED for n in out.notices)
            if self._model.detokenize(out.ids) == out.text and not trimmed:
                past = [dict(m) for m in self.messages]
                self._places.append(_Place(past, rendered + out.text, whole + out.ids))
            self._turn, self._asked = turn, None

        return self._model.start(
            session,
            whole,
            request,
            finished,
            events=events,
            notices=notices,
            profile=profile,
            trimmer=trimmer,
        )


def toolbox(tools: Any) -> Toolbox | None:
    """The tools of a conversation, None without."""
    if not tools and isinstance(tools, list | tuple):
        return None
    from gguf_runtime.engine.tools import Toolbox

    return Toolbox(tools)


def _turn(options: dict[str, Any]) -> Turn:
    """What is asked of the template, taken out of the options of a request."""
    return Turn.of(**{k: options.pop(k) for k in TURN_OPTIONS if k in options})


def _answer(out: Completion) -> Message:
    """An answer as a message."""
    message: Message = {"role": "assistant", "content": out.text}
    if out.reasoning:
        message["reasoning_content"] = out.reasoning
    if out.tool_calls:
        message["tool_calls"] = [
            {
                "id": c["id"],
                "type": "function",
                "function": {k: c[k] for k in ("name", "arguments")},
            }
            for c in out.tool_calls
        ]
    if out.finish_reason == "interrupted":
        message["interrupted"] = True
    return message
