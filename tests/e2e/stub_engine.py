"""The program with a stub for an engine: it answers at once with what it was asked.

Run as a script it is `gguf-runtime` on that stub: streams, signals and JSON can be tested without
weights. What the real engine answers is tested in test_answers.py.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import gguf_runtime
from gguf_runtime.cli.dispatch import Row, dispatch
from gguf_runtime.errors import ModelError, RequestError

ROWS = (
    Row("run", "run.run", "one answer"),
    Row("chat", "chat.chat", "a conversation"),
    Row("bench", "bench.bench", "speed"),
)


class Stream:
    """Pieces of an answer; `result` afterwards, also when it was closed early."""

    def __init__(self, pieces: list[str], reason: str, notices: list[Any], pause: float) -> None:
        self._pieces, self._reason, self._pause = pieces, reason, pause
        self._said: list[str] = []
        self._notices = notices
        self.closed = False

    def __iter__(self):
        for piece in self._pieces:
            self._said.append(piece)
            yield piece
            time.sleep(self._pause)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._reason = "interrupted"

    @property
    def result(self) -> Any:
        return SimpleNamespace(
            text="".join(self._said),
            ids=list(range(len(self._said))),
            finish_reason=self._reason,
            stop=None,
            usage={"prompt": 3, "generated": len(self._said)},
            timings={"prefill_s": 0.5, "decode_tps": float("inf")},
            sampling={"temperature": 0.8},
            seed=7,
            notices=self._notices,
        )


class Model:
    """Answers with its own request, a word at a time."""

    def __init__(self, name: str, **options: Any) -> None:
        if name == "missing":
            raise ModelError("no model and no file named missing", hint="gguf-runtime list")
        self.options = options
        self.info = SimpleNamespace(n_vocab=100, architecture="stub", type="Q4_0", fingerprint="f0")
        self.path, self.threads, self.isa, self.context = "/m.gguf", 2, "generic", 64
        self.notices = (
            [SimpleNamespace(code="context-lowered", message="the context is 64 tokens")]
            if name == "noticing"
            else []
        )

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def stream(self, **request: Any) -> Stream:
        if request.get("prompt") == "too long":
            raise RequestError("the prompt is longer than the context", expected="64", got="99")
        if request.get("prompt") == "slow":
            return Stream(["word "] * 1000, "length", [], 0.05)
        if request.get("prompt") == "escape":
            return Stream(["a\x1b[31mb\x07\n"], "stop", [], 0)
        if request.get("prompt") == "fill":
            return Stream(["half an"], "context", [], 0)
        words = [f"{w} " for w in str(sorted(request.items())).split()]
        return Stream(words or [""], "stop", [], 0)

    def chat(self, system: str | None = None) -> Chat:
        return Chat(system)

    def session(self) -> Session:
        return Session()


class Chat:
    """Counts its turns."""

    def __init__(self, system: str | None) -> None:
        self.system, self.turns = system, 0

    def stream(self, text: str, **request: Any) -> Stream:
        if text == "too long":
            raise RequestError("the conversation is longer than the context")
        self.turns += 1
        pause = 0.05 if text == "slow" else 0
        pieces = ["word "] * 1000 if text == "slow" else [f"{self.turns}: ", repr(text)]
        return Stream(pieces, "stop", [], pause)


class Session:
    """Takes a millisecond for a token."""

    def feed(self, ids: list[int]) -> None:
        time.sleep(0.0001 * len(ids))


if __name__ == "__main__":
    gguf_runtime.Model = Model  # type: ignore[misc]
    sys.exit(dispatch(ROWS))
