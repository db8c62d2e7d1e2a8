"""The program with a stub for an engine: it answers at once with what it was asked.

Run as a script it is `gguf-runtime` on that stub: streams, signals and JSON can be tested without
weights. What the real engine answers is tested in test_answers.py.
"""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import gguf_runtime
from gguf_runtime.cli.dispatch import Row, dispatch
from gguf_runtime.engine.request import Defaults
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
        self.closed = self.events = False

    def __iter__(self):
        for piece in self._pieces:
            self._said.append(piece)
            yield ("text", piece) if self.events else piece
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

    def stream(self, *, events: bool = False, **request: Any) -> Stream:
        stream = self._stream(request)
        stream.events = events
        return stream

    def _stream(self, request: dict[str, Any]) -> Stream:
        if request.get("prompt") == "too long":
            raise RequestError("the prompt is longer than the context", expected="64", got="99")
        if request.get("prompt") == "slow":
            return Stream(["word "] * 1000, "length", [], 0.05)
        if request.get("prompt") == "escape":
            return Stream(["a\x1b[31mb\x07\n"], "stop", [], 0)
        words = [f"{w} " for w in str(sorted(request.items())).split()]
        return Stream(words or [""], "stop", [], 0)

    def chat(
        self, system: str | None = None, messages: Any = (), tools: Any = (), confirm: Any = None
    ) -> Chat:
        self.context = 1 << 20
        chat = Chat(system, messages)
        chat.tools, chat.confirm = {t.name: t.function for t in tools}, confirm
        return chat

    def request(self, *, templated: bool, **options: Any) -> Any:
        n_vocab, end_ids = self.info.n_vocab, frozenset([0])
        return Defaults(n_vocab, end_ids, {}, None).request(templated=templated, **options)

    def tokenize(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def close(self) -> None:
        pass

    def session(self) -> Session:
        return Session()


class Chat:
    """Counts its turns; a message that begins with `say ` is answered with its rest."""

    def __init__(self, system: str | None, messages: Any = ()) -> None:
        first = [{"role": "system", "content": system}] if system is not None else []
        self.messages: list[dict[str, Any]] = [*first, *messages]

    @property
    def turns(self) -> int:
        return sum(m["role"] == "user" for m in self.messages)

    @property
    def tokens(self) -> int:
        return sum(len(m["content"].split()) for m in self.messages)

    def stream(self, text: str, *, events: bool = False, **request: Any) -> Stream:
        if text.startswith("call "):
            return CallStream(self, text, events)
        if text == "too long":
            raise RequestError("the conversation is much longer than it may be")
        self.messages.append({"role": "user", "content": text})
        pause = 0.0
        if text.startswith("slow"):
            pieces, pause = ["word "] * 1000, 0.05
        elif text == "think":
            pieces = ["(let me ", "think\x1b[31m\n", "about it)", "the ", "answer"]
        elif text == "hostile":
            pieces = ["\x1b[31mred\x1b]0;title\x07", ", bell\x07\x9b\x08"]
        elif text.startswith("say-slowly "):
            pieces, pause = re.findall(r"(?s).{1,7}", text[11:]), 0.01
        elif text.startswith("say "):
            pieces, pause = re.findall(r"(?s).{1,7}", text[4:]), 0.002
        else:
            pieces = [f"{self.turns}: ", repr(text)]
        return ChatStream(self, pieces, pause, events)

    def undo(self) -> str:
        for k in reversed(range(len(self.messages))):
            if self.messages[k]["role"] == "user":
                text: str = self.messages[k]["content"]
                del self.messages[k:]
                return text
        raise RequestError("there is no message to take back")

    def read(self, **request: Any) -> Any:
        return completion("", "length", self.tokens, 0)

    def close(self) -> None:
        pass


class CallStream:
    """An answer to `call NAME TEXT`: the call, its result, and words about it."""

    def __init__(self, chat: Chat, text: str, events: bool) -> None:
        assert events
        self._chat, self._words = chat, text.split()[1:]
        chat.messages.append({"role": "user", "content": text})
        self.result = completion("Done.", "stop", chat.tokens, 1)

    def __iter__(self):
        name, text = self._words
        call = {"name": name, "arguments": {"text": text}, "id": "x"}
        yield "text", "Well. "
        yield "tool", call
        run = self._chat.confirm(call)
        yield "result", (call, self._chat.tools[name](text) if run else "declined")
        yield "text", "Done."
        self._chat.messages.append({"role": "assistant", "content": "Done."})

    def close(self) -> None:
        pass

    def __enter__(self) -> CallStream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class ChatStream:
    """An answer of `Chat`; closing it ends it, as the engine's does."""

    def __init__(self, chat: Chat, pieces: list[str], pause: float, events: bool) -> None:
        self._chat, self._left, self._pause = chat, iter(pieces), pause
        self._events, self._said, self._over = events, "", False
        self._thinking = False
        self.result = completion("", "interrupted", chat.tokens, 0)

    def __iter__(self) -> ChatStream:
        return self

    def __next__(self) -> Any:
        if self._said:
            time.sleep(self._pause)
        piece = None if self._over else next(self._left, None)
        if piece is None:
            self._end("stop")
            raise StopIteration
        if piece == "(let me " or self._thinking:
            self._thinking = not piece.endswith(")")
            return "reasoning", piece.strip("()")
        self._said += piece
        return ("text", piece) if self._events else piece

    def close(self) -> None:
        self._end("interrupted")

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        message: dict[str, Any] = {"role": "assistant", "content": self._said}
        if reason == "interrupted":
            message["interrupted"] = True
        n = self._chat.tokens
        self._chat.messages.append(message)
        self.result = completion(self._said, reason, n, len(self._said.split()))

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def completion(text: str, reason: str, prompt: int, generated: int) -> Any:
    """As the engine gives it, as far as a conversation looks at it."""
    return SimpleNamespace(
        text=text,
        finish_reason=reason,
        usage=SimpleNamespace(
            prompt=prompt, cached=0, generated=generated, reasoning=0, drafted=0, accepted=0
        ),
        timings=SimpleNamespace(prefill_tps=100.0, decode_tps=50.0, ttft_s=0.1),
        seed=7,
        notices=[],
    )


class Session:
    """Takes a millisecond for a token."""

    def feed(self, ids: list[int]) -> None:
        time.sleep(0.0001 * len(ids))


if __name__ == "__main__":
    gguf_runtime.Model = Model  # type: ignore[misc]
    sys.exit(dispatch(ROWS))
