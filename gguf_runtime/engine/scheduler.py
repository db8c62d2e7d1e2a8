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
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.job import ALIKE, Bell, Job, clock
from gguf_runtime.engine.runner import Dropped, Runner
from gguf_runtime.engine.step import Entry
from gguf_runtime.errors import MachineError, RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend

MIXED = 128  # tokens of prompts in a step, where somebody waits for the next token of an answer


class Scheduler:
    """All jobs of one model."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._runner = Runner(backend)
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
        job.start()
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
        me = threading.get_ident()
        try:
            while not ready():
                turn = self.backend.turn()
                if self._leader == me:
                    raise RequestError("the model cannot be asked while this thread steps it")
                if self._leader:
                    self._waiting.add(bell)
                    if self._leader:  # who ends now rings
                        bell.wait()
                else:
                    self._lead(ready, me, turn)
                if told is not None:
                    told()
        finally:
            self._waiting.discard(bell)
            self._pass_on()

    def _lead(self, ready: Callable[[], bool], me: int, turn: AbstractContextManager[Any]) -> None:
        """One step, unless it is not needed any more."""
        self.backend.line_up()
        try:
            with turn:
                try:
                    self._leader = me
                    if not ready():
                        self._step()
                finally:
                    self._leader = 0
        finally:
            self.backend.leave()

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
        now, over = clock(), False
        active = []
        for job in self._jobs:
            if now > job.deadline and job.ended is None:
                job.ended = "time"
                job.bell.ring()
            if job.over:
                over = True
            elif not job.paused:
                active.append(job)
        if over:
            self._jobs = [job for job in self._jobs if not job.over]
            self._full = False
        special = next((job for job in active if job.recorder is not None), None)
        if special is not None:  # what its rows take is to be its own
            active = [special]
        try:
            if len(active) == 1 and active[0].answering:
                self._single(active[0])
            elif active:
                self._runner.run(self._gather(active))
        except Dropped:
            pass

    def _single(self, job: Job) -> None:
        """The next token of the only answer, or several by guessing."""
        begin = clock()
        draft = job.draft()
        if draft:
            self._runner.verify(job, draft)
        else:
            parts: list[tuple[Job, Entry]] = []
            self._take(parts, job, 1)
            self._runner.run(parts)
        job.took(len(draft), clock() - begin)

    def _gather(self, active: Sequence[Job]) -> list[tuple[Job, Entry]]:
        """What the next step feeds: a token of every answer, and pieces of prompts."""
        answering: list[Job] = []
        reading: list[Job] = []
        for job in active:
            (answering if job.answering else reading).append(job)
        most, room = self.most, self.backend.n_batch
        if len(answering) > most:
            first = self._turn % len(answering)
            answering = (answering[first:] + answering[:first])[:most]
            self._turn = first + most
        parts: list[tuple[Job, Entry]] = []
        for job in answering:
            self._take(parts, job, 1)
        left = room - len(parts)
        if not all(job.patient for job, _ in parts):
            left = min(left, MIXED)
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
