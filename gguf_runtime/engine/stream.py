"""An answer as it comes: iterate it for text, close it to stop, read `result` afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Completion

if TYPE_CHECKING:
    from gguf_runtime.engine.generate import Generation
    from gguf_runtime.text.reply import Event

Finished = Callable[[Completion], None]


class Stream:
    """Iterator of str, whole characters each; with events=True of ("text" or "reasoning", str) and
    ("tool", call).

    Leaving the loop early, `close()` or the end of a `with` block cancels what is left. `result` is
    the Completion; before the end it shows what there is so far, with finish_reason "interrupted".
    """

    def __init__(
        self,
        generation: Generation,
        finished: Finished,
        *,
        events: bool = False,
    ) -> None:
        self._generation = generation
        self._finished, self._events = finished, events
        self._pieces: Iterator[Event] | None = iter(
            generation
        )  # last: from here on it can be closed

    @classmethod
    def begin(
        cls,
        generation: Generation,
        finished: Finished,
        *,
        events: bool,
        profile: bool,
    ) -> Stream:
        """A stream whose rows are timed, if so asked."""
        if profile:
            from gguf_runtime.engine.profile import profiled

            generation.recorder, finished = profiled(generation.backend, finished)
        return cls(generation, finished, events=events)

    @property
    def result(self) -> Completion:
        """The answer, as far as it was given."""
        if self._pieces is not None:
            self._generation.update()
        return self._generation.completion

    @property
    def prompt_ids(self) -> list[int]:
        """What the model reads before it answers."""
        return list(self._generation.prompt_ids)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        pieces = self._pieces  # a signal handler may close the stream between these lines
        if pieces is None:
            raise StopIteration
        try:
            event = next(pieces)
            while not self._events and event[0] != "text":
                event = next(pieces)
        except BaseException:  # the end, an error, or Ctrl-C: in each case it is over
            self.close()
            raise
        return event if self._events else event[1]

    def close(self) -> None:
        """Stop here; idempotent. Takes no lock, so that finalizers may do it too."""
        pieces, self._pieces = self._pieces, None
        if pieces is None:
            return
        self._generation.cancel()
        try:
            pieces.close()  # type: ignore[attr-defined]
        except ValueError:  # another thread is in it: that one will come here when it is over
            self._pieces = pieces
            return
        self._generation.update()
        self._finished(self._generation.completion)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pieces", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<Stream, {self._generation.completion.usage.generated} tokens so far>"
