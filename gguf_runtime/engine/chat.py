"""A conversation: messages, and the ids that were read for them, so that each turn reads only what is new.

A turn's prompt is what the template renders behind the text that was read already: earlier prompts and answers are never
tokenized again. What they left in the prefix tree is where the turn starts; where a template changes the past (drops old
reasoning, say), the longest common beginning of the ids. Between turns a conversation holds no memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from gguf_runtime.engine.completion import Completion
from gguf_runtime.engine.prompt import after
from gguf_runtime.engine.stream import Stream
from gguf_runtime.errors import RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.engine.model import Model
    from gguf_runtime.engine.request import Request

Message = dict[str, Any]

NEVER = "\0"  # no rendering begins with it


class Chat:
    """Made by `Model.chat()`; `messages` is the conversation so far. For one thread at a time."""

    def __init__(
        self, model: Model, system: str | None = None, messages: Sequence[Message] = ()
    ) -> None:
        model.backend.turn()  # refused where the model is closed
        self._model = model
        self._text = ""  # what was read, as rendered, and answers as decoded
        self._read: list[int] = []
        self._closed = False
        self._stream: ref[Stream] | None = None
        self._asked: Message | None = None  # whose turn is not over
        self.messages: list[Message] = [dict(m) for m in messages]
        if system is not None:
            self.messages.insert(0, {"role": "system", "content": system})

    def send(self, text: str, **options: Any) -> Completion:
        """One turn, to its end. Options are those of `Model.complete`."""
        stream = self.stream(text, **options)
        for _ in stream:
            pass
        return stream.result

    def stream(
        self, text: str, *, events: bool = False, profile: bool = False, **options: Any
    ) -> Stream:
        """One turn, as it comes; the answer before it is ended, if it was not.

        A turn that is stopped stays in the conversation with what it said, unless it was stopped
        before the message was read, or failed.

        Raises:
            RequestError: the conversation does not fit the context any more, or an option is
                wrong; the message is then not part of the conversation.
        """
        if not isinstance(text, str):
            raise RequestError("a message is a text", got=show(text))
        if self._closed:
            raise RequestError("this conversation is closed")
        self._end_stream()
        request = self._model.request(templated=True, **options)
        self._settle()
        self._asked = message = {"role": "user", "content": text}
        try:
            self.messages.append(message)
            stream = self._begin(message, request, events, profile)
        except BaseException:
            self._settle()
            raise
        self._stream = ref(stream)
        return stream

    def fork(self) -> Chat:
        """A conversation with the same past; an answer that is being given is ended first."""
        self._end_stream()
        self._settle()
        twin = object.__new__(Chat)
        twin._model, twin._closed = self._model, self._closed
        twin._text, twin._read, twin._stream = self._text, list(self._read), None
        twin._asked = None
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
        return f"<Chat, {len(self.messages)} messages, {len(self._read):,} tokens>"

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

    def _begin(self, message: Message, request: Request, events: bool, profile: bool) -> Stream:
        prompter = self._model.prompter
        segments = prompter.segments(self.messages)
        rendered = "".join(text for text, _ in segments)
        if self._read and rendered.startswith(self._text):
            rest = after(segments, len(self._text))
            whole = self._read + prompter.encode(rest, start=False)
        else:
            whole = prompter.encode(segments)
        limit = self._model.context
        if len(whole) > limit:
            raise RequestError(
                "the conversation is longer than the context",
                expected=f"at most {limit:,} tokens",
                got=f"{len(whole):,}, {len(whole) - limit:,} too many",
                hint="start a new conversation, or use a larger context (-c N)",
            )
        session = self._model.session(request.reuse)

        def finished(out: Completion) -> None:
            read = session.ids[: len(whole)] == whole
            session.close(keep=out.finish_reason != "error")
            if self._asked is not message:  # taken out already
                return
            if out.finish_reason == "error" or not read:
                self._settle()
                return
            # A stop string was cut off what is shown: then the next turn compares ids instead.
            exact = self._model.detokenize(out.ids) == out.text
            text, ids = rendered + out.text if exact else NEVER, whole + out.ids
            self.messages.append({"role": "assistant", "content": out.text})
            self._text, self._read, self._asked = text, ids, None

        return self._model.start(session, whole, request, finished, events=events, profile=profile)
