"""A conversation: messages, and the session that has read them, so that each turn reads only what is new.

A turn's prompt is what the template renders behind the text that the session holds already: earlier prompts and answers
are never read or tokenized again. Where a template changes the past (drops old reasoning, say), the longest common
beginning of the ids is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Completion
from gguf_runtime.engine.prompt import after
from gguf_runtime.engine.session import Session
from gguf_runtime.engine.stream import Stream
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.model import Model

Message = dict[str, Any]


class Chat:
    """Made by `Model.chat()`; `messages` is the conversation so far."""

    def __init__(self, model: Model, system: str | None = None, messages: Sequence[Message] = ()) -> None:
        self._model = model
        self._session: Session = model.session()
        self._text = ""  # what the session has read, as rendered, and answers as decoded
        self._read: list[int] = []
        self.messages: list[Message] = [dict(m) for m in messages]
        if system is not None:
            self.messages.insert(0, {"role": "system", "content": system})

    def send(self, text: str, **options: Any) -> Completion:
        """One turn, to its end. Options are those of `Model.complete`."""
        stream = self.stream(text, **options)
        for _ in stream:
            pass
        return stream.result

    def stream(self, text: str, *, events: bool = False, **options: Any) -> Stream:
        """One turn, as it comes. A turn that is stopped stays in the conversation with what it said.

        Raises:
            RequestError: the conversation does not fit the context any more, or an option is wrong; the message is
                then not part of the conversation.
        """
        self.messages.append({"role": "user", "content": text})
        try:
            return self._begin(events, options)
        except BaseException:
            self.messages.pop()
            raise

    def fork(self) -> Chat:
        """A conversation with the same past."""
        twin = object.__new__(Chat)
        twin._model, twin._session = self._model, self._session.fork()
        twin._text, twin._read = self._text, list(self._read)
        twin.messages = [dict(m) for m in self.messages]
        return twin

    def close(self) -> None:
        """Give the cache pages back."""
        self._session.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Chat, {len(self.messages)} messages, {len(self._session)} tokens>"

    def _begin(self, events: bool, options: dict[str, Any]) -> Stream:
        prompter = self._model.prompter
        segments = prompter.segments(self.messages)
        rendered = "".join(text for text, _ in segments)
        goes_on = bool(self._read) and rendered.startswith(self._text)
        if goes_on:
            whole = self._read + prompter.encode(after(segments, len(self._text)), start=False)
        else:
            whole = prompter.encode(segments)
        keep = common(self._session.ids, whole)
        limit = self._model.context
        if len(whole) > limit:
            raise RequestError(
                "the conversation is longer than the context",
                expected=f"at most {limit:,} tokens",
                got=f"{len(whole):,}",
                hint="start a new conversation, or use a larger context (-c N)",
            )
        # The last token is read again if need be: its logits choose the first token of the answer.
        self._session.truncate(min(keep, len(whole) - 1))
        request = self._model.request(templated=True, **options)

        def finished(out: Completion) -> None:
            said = out.text
            if self._session.ids[: len(whole)] != whole:  # the prompt was not read to its end
                self.messages.pop()
                return
            self.messages.append({"role": "assistant", "content": said})
            self._read = whole + out.ids
            decoded = self._model.detokenize(out.ids)
            # A stop string was cut off what is shown; then the next turn compares ids instead.
            self._text = rendered + decoded if decoded == said else "\0"

        new = whole[len(self._session.ids) :]
        return self._model.start(self._session, new, request, finished, events=events)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    for k in range(n):
        if a[k] != b[k]:
            return k
    return n
