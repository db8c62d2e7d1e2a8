"""One step for several answers: feed, choose, hand out; and the same with a draft for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gguf_runtime.engine.job import Job, clock
from gguf_runtime.engine.step import Entry
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.sampling import Sampling


class Dropped(Exception):
    """A step was given up: somebody in it wants no more."""


class Runner:
    """Carries out what the scheduler has put together; both raise Dropped."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def run(self, parts: Sequence[tuple[Job, Entry]]) -> None:
        """Step, choose, and hand out."""
        if not parts:
            return
        backend = self.backend
        begin = clock()

        def check() -> None:
            now = clock()
            for job, entry in parts:
                if now > job.deadline or (
                    job.cancelled and (len(parts) == 1 or len(entry.ids) > 1)
                ):
                    raise Dropped

        picks: list[tuple[int, Sampling, int]] = []
        recorder = parts[0][0].recorder
        if recorder is not None:
            recorder.phase = "answer" if parts[0][0].read else "prompt"
        try:
            logits, _ = backend.step([e for _, e in parts], check, recorder)
            for job, entry in parts:
                if entry.outputs:
                    if (bits := job.mask()) is not None:
                        backend.bar(logits[len(picks)], bits)
                    picks.append((len(picks), job.sampling(), entry.sequence.length))
            chosen = backend.pick_all(logits, picks)
        except Dropped:
            raise
        except Exception as e:  # noqa: BLE001 - goes to whoever reads this answer
            left = [p for p in parts if not p[0].over]
            if len(left) < len(parts):  # one that was closed meanwhile
                self.run(left)
            elif len(parts) == 1:
                parts[0][0].fail(e)
                parts[0][0].bell.ring()
            else:
                for part in parts:  # whose fault it is
                    self.run([part])
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

    def verify(self, job: Job, draft: list[int]) -> None:
        """Feed the last token and a draft together, and choose behind each as long as it was right.

        Every choice is made with the state, penalties and random number that it would have had
        without drafts, on logits that are the same bits: so it is the same token.
        """
        backend, session = self.backend, job.session
        begin = clock()

        def check() -> None:
            if job.cancelled or clock() > job.deadline:
                raise Dropped

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
        except Dropped:
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
