"""The decode loop: read the prompt, then choose a token, show its text, feed it, until something ends it.

A generator of text pieces, so that whoever reads sets the pace; each piece is whole characters. What ends an answer:
the end of turn, a stop id or string, the number of tokens, the context, the time, or the caller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.completion import Completion, Notice
from gguf_runtime.engine.session import Session
from gguf_runtime.text.detokenizer import Detokenizer
from gguf_runtime.text.stops import StopMatcher

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.sampling import Sampling
    from gguf_runtime.text.tokenizer import Tokenizer

F32 = NDArray[np.float32]

LOOP_REPEATS, LOOP_PERIOD, LOOP_EVERY = 8, 64, 16  # a cycle seen so often, of at most so many tokens


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a generation, all defaults filled in.

    max_tokens  -1: until the context is full
    end_ids     tokens that end a turn
    started     clock at which the request began
    """

    sampling: Sampling
    max_tokens: int
    end_ids: frozenset[int]
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    max_time: float | None = None
    started: float = field(default_factory=time.perf_counter)


class _OutOfTime(Exception):
    """The deadline passed while a step ran."""


class Generation:
    """One answer in the making; iterate it, then look at `completion`."""

    def __init__(
        self, backend: Backend, tokenizer: Tokenizer, session: Session, new_ids: Sequence[int], request: Request
    ) -> None:
        self._backend, self._tokenizer = backend, tokenizer
        self._session, self._new, self._request = session, list(new_ids), request
        self.completion = Completion(seed=request.sampling.seed, sampling=request.sampling.as_dict())
        self._cancelled = False

    def cancel(self) -> None:
        """End at the next token; `finish_reason` becomes "interrupted"."""
        self._cancelled = True

    def __iter__(self) -> Iterator[str]:
        out, request = self.completion, self._request
        usage, timings = out.usage, out.timings
        usage.cached = len(self._session.ids)
        usage.prompt = usage.cached + len(self._new)
        matcher, detokenizer = StopMatcher(request.stop), Detokenizer(self._tokenizer)
        shown: list[str] = []
        out.finish_reason = "interrupted"
        decode_from = 0.0
        try:
            logits = self._read_prompt()
            timings.prefill_s = time.perf_counter() - request.started
            past = request.sampling.repeat_last_n
            for i in self._session.ids[-past:] if past else ():
                request.sampling.accept(i)
            for token in self._tokens(logits):
                if timings.ttft_s is None:
                    decode_from = time.perf_counter()
                    timings.ttft_s = decode_from - request.started
                piece = matcher.feed(detokenizer.feed(token))
                if piece:
                    shown.append(piece)
                    yield piece
                if matcher.found is not None:
                    out.finish_reason, out.stop = "stop", matcher.found
                    break
            if matcher.found is None:
                rest = matcher.feed(detokenizer.flush()) + matcher.flush()
                if rest:
                    shown.append(rest)
                    yield rest
        except _OutOfTime:
            out.finish_reason = "time"
        finally:
            now = time.perf_counter()
            timings.total_s = now - request.started
            if decode_from:
                timings.decode_s = now - decode_from
            out.text = "".join(shown)
            self._rates()

    def _read_prompt(self) -> F32:
        with self._backend.lock:
            logits, _ = self._session.extend(self._new, "last", check=self._check)
        return logits

    def _check(self) -> None:
        limit = self._request.max_time
        if limit is not None and time.perf_counter() - self._request.started > limit:
            raise _OutOfTime

    def _tokens(self, logits: F32) -> Iterator[int]:
        """Chosen tokens; sets finish_reason when it ends by itself."""
        out, request = self.completion, self._request
        room = self._backend.n_ctx - len(self._session.ids)
        warned = False
        while True:
            if request.max_tokens >= 0 and len(out.ids) >= request.max_tokens:
                out.finish_reason = "length"
                return
            if self._cancelled:
                return
            with self._backend.lock:
                if out.ids:
                    if len(out.ids) > room:
                        out.finish_reason = "context"
                        return
                    logits, _ = self._session.extend(out.ids[-1:], "last", check=self._check)
                token = self._backend.pick(logits[0], request.sampling, len(self._session.ids))
            if token in request.end_ids or token in request.stop_ids:
                out.finish_reason = "stop"
                out.stop = token if token in request.stop_ids else None
                return
            out.ids.append(token)
            out.usage.generated += 1
            request.sampling.accept(token)
            if not warned and len(out.ids) % LOOP_EVERY == 0 and in_a_loop(out.ids):
                warned = True
                out.notices.append(Notice("repeating", "the answer repeats itself word for word"))
            yield token

    def _rates(self) -> None:
        usage, timings = self.completion.usage, self.completion.timings
        read = usage.prompt - usage.cached
        if timings.prefill_s > 0 and read:
            timings.prefill_tps = read / timings.prefill_s
        if timings.decode_s > 0 and usage.generated > 1:
            timings.decode_tps = (usage.generated - 1) / timings.decode_s


def in_a_loop(ids: Sequence[int]) -> bool:
    """Whether the end is one run of tokens, eight times over."""
    for period in range(1, LOOP_PERIOD + 1):
        n = period * LOOP_REPEATS
        if n > len(ids):
            return False
        tail = ids[-n:]
        if list(tail[period:]) == list(tail[:-period]):
            return True
    return False
