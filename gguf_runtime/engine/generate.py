"""What becomes of chosen tokens: text, piece by piece, until something ends it.

The scheduler chooses tokens; here whoever reads the answer turns them into whole characters, looks
for stop strings and sums up. What ends an answer: the end of turn, a stop id or string, the number
of tokens, the context, the time, or the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gguf_runtime.engine.checks import token_ids
from gguf_runtime.engine.completion import Completion, FinishReason, Notice, Timings
from gguf_runtime.engine.job import Bell, Job, clock
from gguf_runtime.engine.overflow import Later, Trimmer, full, too_long
from gguf_runtime.engine.reply import Budget, Reader, call_id
from gguf_runtime.engine.session import Session
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.guide import Guide
    from gguf_runtime.engine.profile import Recorder
    from gguf_runtime.engine.request import Request
    from gguf_runtime.engine.scheduler import Scheduler
    from gguf_runtime.text.reply import Event
    from gguf_runtime.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]

READING = "reading"  # what progress is told while a prompt is read …
READING_S = 1.0  # … that takes longer than this
LOOP_REPEATS = 8  # a cycle seen so often
LOOP_PERIOD = 64  # of at most so many tokens
LOOP_EVERY = 16  # tokens from one look to the next

UNREADABLE = Notice(
    "unreadable-call", "the model began a tool call that cannot be read; it is left in the text"
)
UNFINISHED = Notice("unfinished", "the answer ended before it was what the constraint asks for")


class Generation:
    """One answer in the making; iterate it, then look at `completion`.

    Or `join` it and `take` pieces while somebody steps, until it is `done`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        session: Session,
        new_ids: Sequence[int],
        request: Request,
        progress: Progress | None = None,
        timings: Mapping[str, float] | None = None,
        bell: Bell | None = None,
        trimmer: Trimmer | None = None,
    ) -> None:
        backend = scheduler.backend
        new_ids = token_ids(new_ids, backend.n_vocab)
        have, limit = len(session.ids), backend.n_ctx
        if have + len(new_ids) > limit:
            raise too_long(have + len(new_ids), limit)
        if not have + len(new_ids):
            raise RequestError("there are no tokens to read", expected="at least one id")
        self.backend = backend
        self._budget: Budget | None = None
        if request.style is not None and request.style.budget is not None:
            self._budget = Budget(request.style, tokenizer)
        self._guide: Guide | None = None
        if request.constraint is not None:
            from gguf_runtime.engine import guide

            self._guide = guide.Guide(request.constraint, tokenizer, request.style)
        self.job = Job(backend, session, new_ids, request, bell, self._budget, self._guide)
        self.prompt_ids = self.job.ids[: self.job.n_prompt]
        self.done = False
        self._trimmer = trimmer
        self._scheduler, self._request, self._progress = scheduler, request, progress
        self._reader = Reader(tokenizer, request.stop, request.style)
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._joined = self._warned = False
        self._steps = self._n_summed = 0
        sampling = request.sampling
        self.completion = Completion(
            seed=sampling.seed,
            sampling=sampling.as_dict(),
            finish_reason="interrupted",
            timings=Timings(**(timings or {})),
        )
        self.completion.usage.prompt = self.job.n_prompt

    @property
    def recorder(self) -> Recorder | None:
        """What is told how long the rows take."""
        return self.job.recorder

    @recorder.setter
    def recorder(self, recorder: Recorder | None) -> None:
        self.job.recorder = recorder

    def cancel(self) -> None:
        """End soon, also from another thread; `finish_reason` becomes "interrupted"."""
        self.job.cancel()

    def update(self) -> None:
        """Bring the completion's text up to what was taken so far."""
        out = self.completion
        out.text = "".join(self._shown)
        out.reasoning = "".join(self._thought) or None

    def close(self) -> None:
        """Give the session back; what it holds stays for prompts that begin alike, but after an error."""
        if not self.done:
            self._end("interrupted")
        self.job.session.close(keep=self.completion.finish_reason != "error")

    def join(self) -> None:
        """Take part in every step from now on; idempotent."""
        if not self._joined:
            self._joined = True
            self._scheduler.join(self.job)

    def __iter__(self) -> Iterator[Event]:
        """What is said, reasoned and called; whoever reads it steps, unless somebody else does."""
        until = self._scheduler.until
        told = self._told if self._progress and self.job.n_prompt > self.backend.n_batch else None
        self.job.started = self._request.started
        try:
            self.join()
            while not self.done:
                events = self.take()
                if events:
                    yield from events
                elif events is None and not self.done:
                    until(lambda: self.job.ready, self.job.bell, told)
            if self.job.error is not None:
                raise self.job.error
        except Exception as e:
            if not self.done or self.job.error is None:
                self._end("error", error=e)
            raise
        finally:
            if not self.done:
                self._end("interrupted")

    def take(self) -> list[Event] | None:
        """What the next chosen token completes; None where there is no such token (yet).

        The last events may come with `done`; nothing follows.
        """
        job, out = self.job, self.completion
        k = job.n_prompt + job.taken
        if job.cancelled:
            self._end("interrupted")
            return None
        if k >= len(job.ids):
            if job.ended is None or k < len(job.ids):
                return None
            return self._last()
        token = job.ids[k]
        job.taken += 1
        out.ids.append(token)
        usage = out.usage
        usage.generated += 1
        if not self._warned and usage.generated % LOOP_EVERY == 0 and in_a_loop(out.ids):
            self._warned = True
            message = "the answer repeats itself word for word"
            out.notices.append(Notice("repeating", message))
        events = self._show(self._reader.feed(token))
        usage.reasoning = self._reader.reasoning
        if self._warned and self._request.stop_on_loop and not self.done:
            self._end("loop")
        return events

    def _show(self, events: list[Event]) -> list[Event]:
        """Events on their way out; the end where their text met a stop string."""
        out = self.completion
        for kind, value in events:
            if kind == "text":
                self._shown.append(value)
            elif kind == "reasoning":
                self._thought.append(value)
            else:
                value.setdefault("id", call_id(out.seed, self.job.n_prompt, len(out.tool_calls)))
                out.tool_calls.append(value)
        if self._reader.found is not None:
            out.stop = self._reader.found
            self._end("stop")
        return events

    def _last(self) -> list[Event]:
        """What was held back, at the end of all tokens."""
        job, out = self.job, self.completion
        if job.ended == "context" and self._trimmer is not None and self._go_on(self._trimmer):
            return []
        rest: list[Event] = []
        if job.ended != "error":
            rest = self._show(self._reader.flush())
        if not self.done:
            assert job.ended is not None
            out.stop = job.stop
            if job.ended == "context" and self._request.on_overflow == "error":
                job.fail(full(self.backend.n_ctx))
            called = job.ended == "stop" and out.tool_calls and job.stop is None
            self._end("tool_calls" if called else job.ended, job.error)
            if self._reader.unreadable:
                out.notices.append(UNREADABLE)
        return rest

    def _go_on(self, trimmer: Trimmer) -> bool:
        """Read a shorter prompt with the answer so far, and go on behind it; False: none is shorter."""
        old, out, request = self.job, self.completion, self._request
        # A constrained answer is led to its end while there is room.
        ids = trimmer.behind(out.ids) if self._guide is None else None
        if ids is None:
            return False
        out.notices += trimmer.notices
        trimmer.notices.clear()
        left = request.max_tokens
        if left >= 0:
            left -= len(out.ids)
        self._sum(old)
        old.session.close()
        budget = None if self._budget is None else Later(self._budget, out.ids)
        request = replace(request, max_tokens=left)
        self.job = Job(
            self.backend, Session(self.backend, request.reuse), ids, request, old.bell, budget
        )
        self.job.started, self.job.recorder = old.started, old.recorder
        self._scheduler.join(self.job)
        return True

    def _sum(self, job: Job) -> None:
        """Add what a job took."""
        usage, timings = self.completion.usage, self.completion.timings
        usage.drafted += job.drafted
        usage.accepted += job.accepted
        if not self._n_summed:
            usage.cached = job.cached
            if job.first_at is not None and job.started is not None:
                timings.ttft_s = job.first_at - job.started
        timings.prefill_s += job.prefill_s
        timings.decode_s += job.decode_s
        self._steps += job.steps
        self._n_summed += 1

    def _end(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """Nothing follows: sum up."""
        job, out = self.job, self.completion
        if not self.done:
            self._sum(job)
        self.done = True
        job.cancelled = True
        out.finish_reason, out.error = reason, error
        usage, timings = out.usage, out.timings
        began = job.started if job.started is not None else clock()
        timings.total_s = clock() - began
        read = usage.prompt - usage.cached
        if timings.prefill_s > 0 and read:
            timings.prefill_tps = read / timings.prefill_s
        if timings.decode_s > 0:
            timings.decode_tps = self._steps / timings.decode_s
        del job.session.ids[job.n_prompt + job.taken :]  # chosen ahead, and not taken
        self.update()
        constraint = self._request.constraint
        if constraint is not None and reason not in ("error", "interrupted", "tool_calls"):
            if constraint.accepts(out.text):
                out.object = constraint.parse(out.text)
            else:
                out.notices.append(UNFINISHED)

    def _told(self) -> None:
        job = self.job
        late = job.started is not None and clock() - job.started > READING_S
        if late and not job.read and self._progress is not None:
            self._progress(READING, job.at - job.cached, job.n_prompt - job.cached)


def in_a_loop(ids: Sequence[int]) -> bool:
    """Whether the end is one run of tokens, eight times over."""
    last = ids[-1]
    for period in range(1, min(LOOP_PERIOD, len(ids) // LOOP_REPEATS) + 1):
        if ids[-1 - period] == last and ids[-1 - period * (LOOP_REPEATS - 1)] == last:
            tail = list(ids[-period * LOOP_REPEATS :])
            if tail[period:] == tail[:-period]:
                return True
    return False
