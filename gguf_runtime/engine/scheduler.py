"""Who steps, and with what: one flat batch for every sequence that has something to do.

The thread that waits for a token leads: it steps for all, its own answer and those of others, and
hands over when it has what it came for. Whoever finds a leader at work waits for its bell instead. A step
holds the next token of every answer, and beside them pieces of prompts, the oldest first; answers
whose reader does not come pause. A prompt that begins like one that is being read waits until that
beginning is there, so it is read once. Where the cache has no more pages, the youngest gives way
and is read again later. Results are the same bits whatever runs beside.

An exception may strike anywhere (Ctrl-C does): see `job`. What is here beside the jobs is a list of
them, which is made anew at each step, and hints whose loss costs a short wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gguf_runtime.engine.job import ALIKE, Bell, Job, clock
from gguf_runtime.engine.step import Entry
from gguf_runtime.errors import MachineError, RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.sampling import Sampling

MIXED = 128  # tokens of prompts in a step, where somebody waits for the next token of an answer


class _Dropped(Exception):
    """A step was given up: somebody in it wants no more."""


class Scheduler:
    """All jobs of one model."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._arrivals: deque[Job] = deque()
        self._jobs: list[Job] = []
        self._leader = 0  # the thread that steps, 0: none
        self._waiting: set[Bell] = set()
        self._turn = 0  # whose turn it is among more answers than a step can hold
        self._full = False  # pages ran out: nobody begins before somebody has ended

    @property
    def most(self) -> int:
        """Most sequences of a step."""
        return min(self.backend.n_sequences, self.backend.n_outputs)

    # ---- who steps -----------------------------------------------------------------------------

    def join(self, job: Job) -> None:
        """Take part in every step from now on."""
        if job.started is None:
            job.started = clock()
        self._arrivals.append(job)

    def until(
        self, ready: Callable[[], bool], bell: Bell, told: Callable[[], None] | None = None
    ) -> None:
        """Step, or wait for who steps, until something is ready.

        Args:
            ready: what the caller waits for; it comes true by a step, or `bell` is rung.
            told: called between steps.

        Raises:
            MachineError: this process was forked; RequestError: the model is closed, or the caller
                is in the middle of a step (a signal handler, say).
        """
        backend, me = self.backend, threading.get_ident()
        try:
            while not ready():
                turn = backend.turn()
                if self._leader == me:
                    raise RequestError("the model cannot be asked while this thread steps it")
                if self._leader:
                    self._waiting.add(bell)
                    bell.wait()
                    continue
                backend.line_up()
                try:
                    with turn:
                        try:
                            self._leader = me
                            if not ready():
                                self._step()
                        finally:
                            self._leader = 0
                finally:
                    backend.leave()
                if told is not None:
                    told()
        finally:
            self._waiting.discard(bell)
            self._pass_on()

    def _pass_on(self) -> None:
        """Somebody else may lead."""
        if self._waiting:
            for bell in list(self._waiting)[:1]:
                bell.ring()

    # ---- a step --------------------------------------------------------------------------------

    def _step(self) -> None:
        """One step; the caller leads."""
        while self._arrivals:
            if self._arrivals[0] not in self._jobs:
                self._jobs.append(self._arrivals[0])
            self._arrivals.popleft()
        now = clock()
        for job in self._jobs:
            if job.ended is None and job.late(now):
                job.ended = "time"
                job.bell.ring()
        if any(job.over for job in self._jobs):
            self._jobs = [job for job in self._jobs if not job.over]
            self._full = False
        active = [job for job in self._jobs if not job.paused]
        special = next((job for job in active if job.recorder is not None), None)
        if special is not None:  # what its rows take is to be its own
            active = [special]
        try:
            if len(active) == 1 and active[0].answering:
                self._single(active[0])
            elif active:
                self._run(self._gather(active))
        except _Dropped:
            pass

    def _single(self, job: Job) -> None:
        """The next token of the only answer, or several by guessing."""
        begin = clock()
        draft = job.draft()
        if draft:
            self._verify(job, draft)
        else:
            self._run([(job, job.part(self.backend.n_batch))])
        job.took(len(draft), clock() - begin)

    def _gather(self, active: Sequence[Job]) -> list[tuple[Job, Entry]]:
        """What the next step feeds: a token of every answer, and pieces of prompts."""
        answering = [job for job in active if job.answering]
        reading = [job for job in active if not job.answering]
        most, room = self.most, self.backend.n_batch
        if len(answering) > most:
            first = self._turn % len(answering)
            answering = (answering[first:] + answering[:first])[:most]
            self._turn = first + most
        parts: list[tuple[Job, Entry]] = []
        for job in answering:
            self._take(parts, job, 1)
        left = min(room - len(parts), MIXED if parts else room)
        for job in self._readable(reading):
            if left <= 0 or len(parts) >= most:
                break
            if self._full and parts and not job.at:
                continue
            left -= self._take(parts, job, left)
        return parts

    def _readable(self, reading: Sequence[Job]) -> list[Job]:
        """Those whose beginning nobody else is about to read."""
        out: list[Job] = []
        for job in reading:
            if not job.waits() and (job.begun or not self._line_up(job, out)):
                out.append(job)
        return out

    def _line_up(self, job: Job, others: Sequence[Job]) -> bool:
        """Have a job wait for one that is reading what it begins with, if that saves something."""
        if not (self.backend.remembers and job.request.reuse and not job.held):
            return False
        have = -1
        for other in others:
            at = min(alike(job.ids, other.ids), len(job.ids) - 1)
            if at < ALIKE or not other.request.reuse:
                continue
            if have < 0:
                have = self.backend.known(job.ids)
            rest = other.n_prompt - other.at
            if at - have < ALIKE or (other.at >= at and rest > at):
                continue
            if other.at < at:
                at = other.cut_near(at)
            job.behind = (other, at if other.at < at else other.n_prompt)
            return True
        return False

    def _take(self, parts: list[tuple[Job, Entry]], job: Job, most: int) -> int:
        """Add what a job feeds next, if the cache has room for it; how many tokens."""
        try:
            job.begin()
            entry = job.part(most)
            while True:
                try:
                    self.backend.reserve(entry.sequence, len(entry.ids))
                    break
                except MachineError:
                    if not self._give_way(job, parts):
                        if parts:
                            return 0
                        raise
        except Exception as e:  # noqa: BLE001 - goes to whoever reads this answer
            job.fail(e)
            job.bell.ring()
            return 0
        parts.append((job, entry))
        return len(entry.ids)

    def _give_way(self, job: Job, parts: Sequence[tuple[Job, Entry]]) -> bool:
        """Free the pages of one whose reader does not come, or who came later."""
        self._full = True
        busy = {id(j) for j, _ in parts}
        holding = [j for j in self._jobs if j is not job and j.at and id(j) not in busy]
        later = [j for j in holding if j.number > job.number]
        for other in ([j for j in holding if j.paused] or later)[-1:]:
            other.session.sequence.truncate(0)
            return True
        return False

    def _run(self, parts: Sequence[tuple[Job, Entry]]) -> None:
        """Step, choose, and hand out."""
        if not parts:
            return
        backend = self.backend
        begin = clock()

        def check() -> None:
            now = clock()
            for job, entry in parts:
                if job.late(now) or (job.cancelled and (len(parts) == 1 or len(entry.ids) > 1)):
                    raise _Dropped

        picks: list[tuple[int, Sampling, int]] = []
        recorder = parts[0][0].recorder
        if recorder is not None:
            recorder.phase = "answer" if parts[0][0].read else "prompt"
        try:
            logits, _ = backend.step([e for _, e in parts], check, recorder)
            for job, entry in parts:
                if entry.outputs:
                    n = entry.sequence.length
                    picks.append((len(picks), job.sampling(), n))
            chosen = backend.pick_all(logits, picks)
        except _Dropped:
            raise
        except Exception as e:  # noqa: BLE001 - goes to whoever reads this answer
            left = [p for p in parts if not p[0].over]
            if len(left) < len(parts):  # one that was closed meanwhile
                self._run(left)
            elif len(parts) == 1:
                parts[0][0].fail(e)
                parts[0][0].bell.ring()
            else:
                for part in parts:  # whose fault it is
                    self._run([part])
            return
        now = clock()
        k = 0
        for job, entry in parts:
            token = None
            if entry.outputs:
                token = chosen[k]
                k += 1
            self._hand(job, entry, token, now - begin, now)

    def _hand(
        self, job: Job, entry: Entry, token: int | RequestError | None, seconds: float, now: float
    ) -> None:
        """What a step gave to one job."""
        session = job.session
        at = entry.sequence.length
        session.took(job.ids, at)
        if job.read:
            job.decode_s += seconds
            job.steps += 1
        else:
            job.prefill_s += seconds
            if at in job.cuts and at < job.n_prompt:
                session.share()
        if token is None:
            if at >= job.n_prompt and job.limit <= 0:
                session.share()
                job.read = True
                job.ended = job.full
                job.bell.ring()
            return
        if isinstance(token, RequestError):
            job.fail(token)
        else:
            if not job.read:
                session.share()
                job.read = True
            job.add(token, now)
        job.bell.ring()

    def _verify(self, job: Job, draft: list[int]) -> None:
        """Feed the last token and a draft together, and choose behind each as long as it was right.

        Every choice is made with the state, penalties and random number that it would have had
        without drafts, on logits that are the same bits: so it is the same token.
        """
        backend, session = self.backend, job.session
        begin = clock()

        def check() -> None:
            if job.cancelled or job.late(clock()):
                raise _Dropped

        try:
            entry = job.part(1)
            base = entry.sequence.length + 1
            wide = Entry(entry.sequence, [*entry.ids, *draft], range(len(draft) + 1))
            logits, _ = backend.step([wide], check, job.recorder)
            sampling = job.sampling().copy()
            chosen: list[int] = []
            for k in range(len(draft) + 1):
                token = backend.pick(logits[k], sampling, base + k)
                chosen.append(token)
                if k == len(draft) or token != draft[k] or token in job.ends:
                    break
                sampling.accept(token)
        except _Dropped:
            raise
        except Exception as e:  # noqa: BLE001 - goes to whoever reads this answer
            job.fail(e)
            job.bell.ring()
            return
        now = clock()
        session.took([*job.ids, *chosen], base + len(chosen) - 1)
        session.settle(len(session.ids))
        job.decode_s += now - begin
        job.steps += 1
        job.drafted += len(draft)
        job.accepted += len(chosen) - 1
        for token in chosen:
            if job.ended is None:
                job.add(token, now)
        job.bell.ring()


def alike(a: list[int], b: list[int]) -> int:
    """How many ids two lists begin with in common."""
    low, high = 0, min(len(a), len(b))
    if a[:ALIKE] != b[:ALIKE]:
        return 0
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # the first `low` are the same, the first `high` are not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
