"""A turn in which tools are called: an answer, the results of its calls, the next answer, and so on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Completion, Notice

if TYPE_CHECKING:
    from gguf_runtime.engine.messages import Message
    from gguf_runtime.engine.stream import Stream
    from gguf_runtime.engine.tools import Toolbox

ROUNDS = 8  # of calls in one turn

Confirm = Callable[[Mapping[str, Any]], bool]

DECLINED = "error: the user declined this call"
TOO_MANY = "error: not called, the turn has had its number of rounds"
STOPPED = "error: not called, the turn was stopped"


class Rounds:
    """What `Chat.stream` gives where there are tools; to be used like a `Stream`.

    With events=True it gives ("result", (call, text)) too. `result` is the Completion of the last
    answer, `completions` has all of them.
    """

    def __init__(
        self,
        stream: Stream,
        again: Callable[[], Stream],
        messages: list[Message],
        tools: Toolbox,
        *,
        confirm: Confirm | None = None,
        most: int = ROUNDS,
        events: bool = False,
    ) -> None:
        self._stream, self._again, self._messages = stream, again, messages
        self._tools, self._confirm, self._most, self._events = tools, confirm, most, events
        self._waiting: deque[tuple[str, Any]] = deque()
        self._over = False
        self.completions: list[Completion] = []

    @property
    def result(self) -> Completion:
        """The last answer, as far as it was given."""
        return self._stream.result

    @property
    def prompt_ids(self) -> Any:
        """What the last answer was an answer to."""
        return self._stream.prompt_ids

    def __iter__(self) -> Rounds:
        return self

    def __next__(self) -> Any:
        while True:
            if self._waiting:
                event = self._waiting.popleft()
            elif self._over:
                raise StopIteration
            else:
                try:
                    event = next(self._stream)
                except StopIteration:
                    self._called()
                    continue
                except BaseException:
                    self._over = True
                    raise
            if self._events:
                return event
            if event[0] == "text":
                return event[1]

    def _called(self) -> None:
        """An answer is over: run what it called, and begin the next."""
        out = self._stream.result
        self.completions.append(out)
        calls = out.tool_calls if out.finish_reason == "tool_calls" else []
        if self._over or not calls or not all(self._tools.runs(call["name"]) for call in calls):
            self._over = True
            return
        left = list(calls)
        otherwise = STOPPED
        try:
            if len(self.completions) > self._most:
                otherwise = TOO_MANY
                message = f"after {self._most} rounds of tool calls no more were made"
                out.notices.append(Notice("tool-rounds", message))
                return
            while left and not self._over:
                text = self._result(left[0])
                self._tell(left.pop(0), text)
            if not left:
                self._stream = self._again()
        finally:
            if left or self._stream.result is out:
                self._over = True
            for call in left:
                self._tell(call, otherwise)

    def _result(self, call: Mapping[str, Any]) -> str:
        if self._confirm is not None and not self._confirm(call):
            return DECLINED
        return self._tools.result(call)

    def _tell(self, call: Mapping[str, Any], text: str) -> None:
        message = {"role": "tool", "name": call["name"], "tool_call_id": call["id"]}
        self._messages.append({**message, "content": text})
        self._waiting.append(("result", (call, text)))

    def close(self) -> None:
        """Stop here; idempotent. No further tool is called."""
        self._over = True
        self._stream.close()

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Rounds, {len(self.completions)} answers so far>"
