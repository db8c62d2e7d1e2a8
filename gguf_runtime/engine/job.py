"""A sequence that is being answered, as the scheduler sees it: tokens to read, tokens chosen, when to stop.

`ids` is the one truth: the prompt and what was chosen behind it. Whoever leads appends to it, in one
operation; all else (what is in the cache, what penalties have counted) is compared with it before use, so
that an exception may strike anywhere. The reader of the answer looks at `ids` and moves `taken`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gguf_runtime.engine.draft import WIDE, Lookup
from gguf_runtime.engine.step import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.engine.completion import FinishReason
    from gguf_runtime.engine.guide import Guide
    from gguf_runtime.engine.overflow import Later
    from gguf_runtime.engine.profile import Recorder
    from gguf_runtime.engine.reply import Budget
    from gguf_runtime.engine.request import Request
    from gguf_runtime.engine.session import Session
    from gguf_runtime.sampling import Sampling

AHEAD = 16  # tokens that may wait for their reader; then the sequence pauses
BRANCH = 64  # tokens that were read before and are read again, from which on a copy is kept
ALIKE = 16  # tokens that prompts must have in common for one to wait for the other
CUTS = 8  # copies that are kept of one prompt on the way
WAIT_S = 0.1  # a bell that was not heard costs so much

_NUMBERS = itertools.count()
_ONE = (0,)


class Bell:
    """What a thread waits for that does not lead; ringing it takes no lock and may be done by anyone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        """Return when it is rung, was rung since the last time, or after a while."""
        self._lock.acquire(timeout=WAIT_S)

    def ring(self) -> None:
        """Let who waits, or comes to wait, go on."""
        with suppress(RuntimeError):  # it was rung already
            self._lock.release()


class Job:
    """One answer.

    Attributes:
        ids: prompt and answer; tokens that end it are not part of it.
        taken: tokens of the answer that its reader has seen.
        ended: why nothing follows, None before; stop: the token that ended it, if one did.
        error: what ended it.
        cached: tokens of the prompt that were found in the cache.
        patient: nobody looks at it token by token, so prompts of others may be read first.
        cuts: positions of the prompt at which a copy is kept for others, ascending.
        prefill_s, decode_s: of the steps that it was part of; steps: those that chose a token after the first.
        first_at: clock when the first token was chosen.
    """

    def __init__(
        self,
        backend: Backend,
        session: Session,
        new_ids: Sequence[int],
        request: Request,
        bell: Bell | None = None,
        budget: Budget | Later | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.session, self.request = session, request
        self.held = len(session.ids)
        self.ids = [*session.ids, *new_ids]
        self.n_prompt = len(self.ids)
        room = backend.n_ctx - self.n_prompt
        self.limit = room if request.max_tokens < 0 else min(room, request.max_tokens)
        self.ends = request.end_ids | request.stop_ids
        self.bell = bell or Bell()
        self.recorder: Recorder | None = None  # told how long the rows take
        self.patient = False
        self.taken = 0
        self.started: float | None = None  # of the clock
        self.deadline = math.inf
        self.begun = False  # the cache was searched for its beginning
        self.read = False  # the prompt is in the cache, and its first token chosen
        self.ended: FinishReason | None = None
        self.stop: int | None = None
        self.error: BaseException | None = None
        self.cancelled = False
        self.number = next(_NUMBERS)  # those who came later have larger ones
        self.cached = 0
        self.cuts: list[int] = []
        self.behind: tuple[Job, int] | None = None  # who reads what this one begins with, how far
        self.prefill_s = self.decode_s = 0.0
        self.steps = self.drafted = self.accepted = 0
        self.first_at: float | None = None
        self._backend = backend
        self._budget, self._guide = budget, guide
        if guide is not None:
            guide.limit(self.limit)
        if self.limit > 1:
            self.ids += self._forced([])[: self.limit - 1]
        self._sampling = request.sampling.copy()
        self._counted = -1  # ids that penalties have counted; -1: none, or not all that they should
        self._lookup: Lookup | None = None

    # ---- for the reader ------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """There is something to take, or nothing more to wait for."""
        return (
            len(self.ids) > self.n_prompt + self.taken or self.ended is not None or self.cancelled
        )

    def cancel(self) -> None:
        """End soon, also from another thread."""
        self.cancelled = True
        self.bell.ring()

    # ---- for who leads -------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """It takes part in no step any more."""
        return self.ended is not None or self.cancelled

    @property
    def paused(self) -> bool:
        """Its reader has enough to do."""
        return len(self.ids) - self.n_prompt - self.taken >= AHEAD

    @property
    def at(self) -> int:
        """Positions that are in the cache."""
        return min(int(self.session.sequence.length), len(self.session.ids))

    @property
    def answering(self) -> bool:
        """All is read but the last token of the answer so far."""
        n = len(self.ids) - 1
        return self.read and self.session.sequence.length >= n and len(self.session.ids) >= n

    def start(self) -> None:
        """Its time runs from now, if it did not before."""
        if self.started is None:
            self.started = clock()
        if self.request.max_time is not None:
            self.deadline = self.started + self.request.max_time

    def fail(self, error: BaseException) -> None:
        """It cannot go on."""
        self.error = error
        self.ended = "error"

    def begin(self) -> None:
        """Start from what others have read."""
        if self.begun:
            return
        session = self.session
        if not self.held:
            known = session.find(self.ids)
            if known - len(session.ids) >= BRANCH:  # where this prompt parts from one before it
                self.cut(known)
        self.cached = max(self.held, session.cached)
        self.begun = True

    def cut(self, at: int) -> None:
        """Keep a copy at a position of the prompt."""
        if at not in self.cuts:
            self.cuts = sorted((*self.cuts, at))

    def cut_near(self, at: int) -> int:
        """Keep a copy at a position or a little before it, unless the end is near; where."""
        for cut in self.cuts:
            if self.at < cut <= at < cut + ALIKE:
                return cut
        if self.n_prompt - at > ALIKE and len(self.cuts) < CUTS:
            self.cut(at)
        return at

    def waits(self) -> bool:
        """Somebody is reading what this one begins with."""
        if self.behind is not None:
            other, at = self.behind
            if not other.over and not other.read and other.at < at:
                return True
            self.behind = None
        return False

    def part(self, most: int) -> Entry:
        """The next tokens to feed, at most so many, and the last one's logits if nothing is known behind it."""
        ids, session = self.ids, self.session
        sequence, at = session.sequence, len(ids) - 1
        if sequence.length != at or len(session.ids) != at:
            at = session.settle(at)
        if at == len(ids) - 1:
            return Entry(sequence, ids[at:], _ONE if self.limit > 0 else ())
        end = min(len(ids), at + most)
        for cut in self.cuts:
            if at < cut < end:
                end = cut
        wanted = end == len(ids) and self.limit > 0
        return Entry(sequence, ids[at:end], (end - at - 1,) if wanted else ())

    def sampling(self) -> Sampling:
        """The sampler, with every token so far counted."""
        if not self._sampling.penalizes:
            return self._sampling
        ids, n = self.ids, len(self.ids)
        last = self.request.sampling.remembers
        counted, self._counted = self._counted, -1
        if counted < 0:
            self._sampling = self.request.sampling.copy()
            counted = max(0, self.n_prompt - last) if last else self.n_prompt
        for k in range(counted, n):
            self._sampling.accept(ids[k])
        self._counted = n
        return self._sampling

    def add(self, token: int, now: float) -> None:
        """This token was chosen."""
        if self.first_at is None:
            self.first_at = now
        if token in self.ends:
            self.stop = token if token in self.request.stop_ids else None
            self.ended = "stop"
            return
        if self._budget is None and self._guide is None:
            self.ids.append(token)
        else:
            answer = [*self.ids[self.n_prompt :], token]
            if self._guide is not None:
                settled = self._guide.settle(answer[:-1], token)
                if settled is None:
                    self.ended = "stop"
                    return
                answer[-1] = settled
            room = self.limit - len(answer)
            self.ids += [answer[-1], *self._forced(answer)[: max(0, room)]]
            if self._guide is not None and self._guide.whole(self.ids[self.n_prompt :]):
                self.ended = "stop"
                return
        if len(self.ids) - self.n_prompt >= self.limit:
            self.ended = self.full

    def _forced(self, answer: list[int]) -> list[int]:
        """Tokens that follow an answer whatever the model says."""
        found = self._budget.forced(answer) if self._budget is not None else []
        return found or (self._guide.forced(answer) if self._guide is not None else [])

    def mask(self) -> NDArray[np.uint8] | None:
        """Bits of the tokens that may be chosen next; None: all of them."""
        return self._guide.mask(self.ids[self.n_prompt :]) if self._guide is not None else None

    @property
    def full(self) -> FinishReason:
        """Why no more than `limit` tokens follow."""
        return "length" if self.limit == self.request.max_tokens else "context"

    def draft(self) -> list[int]:
        """A guess at what follows; often nothing."""
        if not (self.request.speculate and self._backend.speculates):
            return []
        if self._budget is not None or self._guide is not None:
            return []
        if self.request.sampling.more.stateful:
            return []
        if self._lookup is None:
            if not self.read:
                return []
            self._lookup = Lookup((), self._backend.pace)
        lookup = self._lookup
        for i in self.ids[len(lookup) :]:
            lookup.append(i)
        left = self.limit - (len(self.ids) - self.n_prompt)
        most = min(WIDE, left - 1, self._backend.n_outputs - 1)
        return lookup.draft(most) if most > 0 else []

    def took(self, drafted: int, seconds: float) -> None:
        """How long the step took that followed `draft`."""
        if self._lookup is not None:
            self._lookup.took(drafted, seconds)


def clock() -> float:
    """Seconds, for `started`, `first_at` and deadlines."""
    return time.perf_counter()
