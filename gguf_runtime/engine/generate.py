"""The decode loop: read the prompt, then choose a token, show its text, feed it, until it ends.

A generator of text pieces, so that whoever reads sets the pace; each piece is whole characters.
What ends an answer: the end of turn, a stop id or string, the number of tokens, the context, the
time, or the caller.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gguf_runtime.engine.completion import Completion, Notice, Timings
from gguf_runtime.engine.draft import WIDE, Lookup
from gguf_runtime.errors import RequestError
from gguf_runtime.text.detokenizer import Detokenizer
from gguf_runtime.text.stops import StopMatcher

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.engine.profile import Recorder
    from gguf_runtime.engine.request import Request
    from gguf_runtime.engine.session import Session, Told
    from gguf_runtime.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]

READING = "reading"  # what progress is told while a prompt is read …
READING_S = 1.0  # … that takes longer than this
LOOP_REPEATS = 8  # a cycle seen so often
LOOP_PERIOD = 64  # of at most so many tokens
LOOP_EVERY = 16  # tokens from one look to the next


class _OutOfTime(Exception):
    """The deadline passed while a step ran."""


class _Cancelled(Exception):
    """The caller wants no more."""


class Generation:
    """One answer in the making; iterate it, then look at `completion`."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        session: Session,
        new_ids: Sequence[int],
        request: Request,
        progress: Progress | None = None,
        timings: Mapping[str, float] | None = None,
    ) -> None:
        have, limit = len(session.ids), backend.n_ctx
        if have + len(new_ids) > limit:
            raise RequestError(
                "the prompt is longer than the context",
                expected=f"at most {limit:,} tokens",
                got=f"{have + len(new_ids):,}, {have + len(new_ids) - limit:,} too many",
                hint="use a larger context (-c N) or a shorter prompt",
            )
        self.backend, self._session = backend, session
        self._new, self._request, self._progress = list(new_ids), request, progress
        self.recorder: Recorder | None = None  # told how long the rows take
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(request.stop)
        self._shown: list[str] = []
        self._cancelled = False
        self._steps = 0
        self._lookup: Lookup | None = None
        self._verified: deque[int] = deque()  # chosen already, in the order in which they follow
        sampling = request.sampling
        self.completion = Completion(
            seed=sampling.seed,
            sampling=sampling.as_dict(),
            finish_reason="interrupted",
            timings=Timings(**(timings or {})),
        )

    def cancel(self) -> None:
        """End soon, also from another thread; `finish_reason` becomes "interrupted"."""
        self._cancelled = True

    def update(self) -> None:
        """Bring the completion's text up to what was yielded so far."""
        self.completion.text = "".join(self._shown)

    def __iter__(self) -> Iterator[str]:
        out, matcher, shown = self.completion, self._matcher, self._shown
        feed = self._detokenizer.feed
        try:
            for token in self._tokens():
                piece = matcher.feed(feed(token))
                if matcher.found is not None:
                    out.finish_reason, out.stop = "stop", matcher.found
                if piece:
                    shown.append(piece)
                    yield piece
                if matcher.found is not None:
                    break
            else:
                rest = matcher.feed(self._detokenizer.flush()) + matcher.flush()
                if matcher.found is not None:
                    out.finish_reason, out.stop = "stop", matcher.found
                if rest:
                    shown.append(rest)
                    yield rest
        except Exception as e:
            out.finish_reason, out.error = "error", e
            raise
        finally:
            out.timings.total_s = time.perf_counter() - self._request.started
            self._rates()
            self.update()

    def _tokens(self) -> Iterator[int]:
        """Chosen tokens; sets finish_reason when it ends by itself."""
        out, request, sampling = self.completion, self._request, self._request.sampling
        usage, timings, session = out.usage, out.timings, self._session
        usage.prompt = len(session.ids) + len(self._new)
        room = self.backend.n_ctx - usage.prompt
        limit = room if request.max_tokens < 0 else min(room, request.max_tokens)
        ends = request.end_ids | request.stop_ids
        past = sampling.repeat_last_n
        for i in [*session.ids, *self._new][-past:] if past else ():
            sampling.accept(i)
        warned = False
        try:
            token = self._read(pick=limit > 0)
            timings.prefill_s = time.perf_counter() - request.started
            while token >= 0:
                if timings.ttft_s is None:
                    timings.ttft_s = time.perf_counter() - request.started
                if token in ends:
                    out.finish_reason = "stop"
                    out.stop = token if token in request.stop_ids else None
                    return
                out.ids.append(token)
                usage.generated += 1
                sampling.accept(token)
                if self._lookup is not None:
                    self._lookup.append(token)
                if not warned and usage.generated % LOOP_EVERY == 0 and in_a_loop(out.ids):
                    warned = True
                    message = "the answer repeats itself word for word"
                    out.notices.append(Notice("repeating", message))
                yield token
                if usage.generated >= limit:
                    break
                if usage.generated == 1 and request.speculate and self.backend.speculates:
                    self._lookup = Lookup([*session.ids, token], self.backend.pace)
                begin = time.perf_counter()
                token = self._follow(token, limit - usage.generated)
                timings.decode_s += time.perf_counter() - begin
                self._steps += 1
            out.finish_reason = "length" if limit == request.max_tokens else "context"
        except _OutOfTime:
            out.finish_reason = "time"
        except _Cancelled:
            return

    def _read(self, *, pick: bool) -> int:
        """Read the prompt, or what is new of it, and choose the token behind it; -1 without `pick`."""
        session, held = self._session, len(self._session.ids)
        told = self._told if self._progress and len(self._new) > self.backend.n_batch else None
        if self.recorder is not None:
            self.recorder.phase = "prompt"
        try:
            return self._next(self._new, pick=pick, told=told, share=True)
        finally:
            self.completion.usage.cached = max(held, session.cached)
            if self.recorder is not None:
                self.recorder.phase = "answer"

    def _next(
        self, ids: list[int], *, pick: bool, told: Told | None = None, share: bool = False
    ) -> int:
        """Feed ids and choose the token behind them; -1 without `pick`."""
        backend, session = self.backend, self._session
        backend.line_up()
        try:
            with backend.turn():
                logits, _ = session.begin(
                    ids,
                    "last" if pick else "none",
                    check=self._check,
                    told=told,
                    recorder=self.recorder,
                    view=True,
                )
                token = -1
                if pick:
                    token = backend.pick(logits[0], self._request.sampling, len(session.ids))
                if share:
                    session.share()
                return token
        finally:
            backend.leave()

    def _follow(self, token: int, left: int) -> int:
        """The token behind `token`; `left` more are wanted at most."""
        if self._verified:
            return self._verified.popleft()
        if self._lookup is None:
            return self._next([token], pick=True)
        begin = time.perf_counter()
        most = min(WIDE, left - 1, self.backend.n_outputs - 1)
        draft = self._lookup.draft(most) if most > 0 else []
        if draft:
            self._verify(token, draft)
        else:
            self._verified.append(self._next([token], pick=True))
        seconds = time.perf_counter() - begin
        self._lookup.took(len(draft), seconds)
        return self._verified.popleft()

    def _verify(self, token: int, draft: list[int]) -> None:
        """Feed token and draft together, and choose behind each as long as the draft was right.

        Every choice is made with the state, penalties and random number that it would have had
        without drafts, on logits that are the same bits: so it is the same token.
        """
        backend, session, usage = self.backend, self._session, self.completion.usage
        ends = self._request.end_ids | self._request.stop_ids
        sampling = self._request.sampling.copy()
        chosen = self._verified
        backend.line_up()
        try:
            with backend.turn():
                logits, _ = session.extend(
                    [token, *draft], "all", check=self._check, recorder=self.recorder, view=True
                )
                base = len(session.ids) - len(draft)
                for k in range(len(draft) + 1):
                    t = backend.pick(logits[k], sampling, base + k)
                    chosen.append(t)
                    if k == len(draft) or t != draft[k] or t in ends:
                        break
                    sampling.accept(t)
                session.truncate(base + len(chosen) - 1)
        finally:
            backend.leave()
        usage.drafted += len(draft)
        usage.accepted += len(chosen) - 1

    def _told(self) -> None:
        late = time.perf_counter() - self._request.started > READING_S
        if late and self._progress is not None:
            session, total = self._session, self.completion.usage.prompt
            self._progress(READING, len(session.ids) - session.cached, total - session.cached)

    def _check(self) -> None:
        if self._cancelled:
            raise _Cancelled
        limit = self._request.max_time
        if limit is not None and time.perf_counter() - self._request.started > limit:
            raise _OutOfTime

    def _rates(self) -> None:
        usage, timings = self.completion.usage, self.completion.timings
        read = usage.prompt - usage.cached
        if timings.prefill_s > 0 and read:
            timings.prefill_tps = read / timings.prefill_s
        if timings.decode_s > 0:
            timings.decode_tps = self._steps / timings.decode_s


def in_a_loop(ids: Sequence[int]) -> bool:
    """Whether the end is one run of tokens, eight times over."""
    last = ids[-1]
    for period in range(1, min(LOOP_PERIOD, len(ids) // LOOP_REPEATS) + 1):
        if ids[-1 - period] == last and ids[-1 - period * (LOOP_REPEATS - 1)] == last:
            tail = list(ids[-period * LOOP_REPEATS :])
            if tail[period:] == tail[:-period]:
                return True
    return False
