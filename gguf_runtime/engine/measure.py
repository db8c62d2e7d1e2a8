"""Speed of a model on this machine, in rows that llama-bench's readers know, with what limits each.

Every row is repeated on new ids after one repetition that does not count; passes over memory lie
between the repetitions, so that both see the same machine. Three more are profiled, of which the
least disturbed counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gguf_runtime.engine.backend import KernelBackend
from gguf_runtime.engine.model import Model
from gguf_runtime.engine.profile import Kind, Phase, Recorder, phases
from gguf_runtime.engine.profile_text import bottleneck
from gguf_runtime.engine.session import Session
from quant.roofs import Limits, Roofs, limits

Progress = Callable[[int, int], None]
PROFILED = 3  # repetitions


@dataclass(frozen=True, slots=True)
class Test:
    """A prompt of `prompt` tokens or an answer of `answer` tokens, after `depth` others."""

    prompt: int
    answer: int
    depth: int

    @property
    def name(self) -> str:
        """pp512, tg128, tg128 @ d4096."""
        word = f"pp{self.prompt}" if self.prompt else f"tg{self.answer}"
        return f"{word} @ d{self.depth}" if self.depth else word


@dataclass(frozen=True, slots=True)
class Measured:
    """Repetitions of one test; without kernels (exact arithmetic) nothing is known of its rows.

    speeds         tokens per second of every repetition
    seconds        of the median repetition
    first_token_s  of a prompt
    """

    test: Test
    speeds: tuple[float, ...]
    seconds: float
    phase: Phase | None
    limits: Limits | None

    @property
    def n_tokens(self) -> int:
        """Read or answered."""
        return self.test.prompt or self.test.answer

    @property
    def mean(self) -> float:
        """Tokens per second."""
        return statistics.fmean(self.speeds)

    @property
    def sd(self) -> float:
        """Standard deviation of tokens per second."""
        return statistics.stdev(self.speeds) if len(self.speeds) > 1 else 0.0

    @property
    def first_token_s(self) -> float | None:
        """Seconds to the first token after a prompt."""
        return self.seconds if self.test.prompt else None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Rows of the profiled repetition."""
        return self.phase.kinds if self.phase else ()

    @property
    def bytes_per_s(self) -> float:
        """Weights and cache that were read."""
        return self.phase.n_bytes / self.seconds if self.phase else 0.0

    @property
    def macs_per_s(self) -> float:
        """Multiply-adds of matmuls and attention."""
        return self.phase.n_macs / self.seconds if self.phase else 0.0

    @property
    def memory_share(self) -> float | None:
        """Of the bytes that memory can give."""
        return self.bytes_per_s / self.limits.read if self.limits else None

    @property
    def compute_share(self) -> float | None:
        """Of the multiply-adds that registers can do, each kind of row against its own peak."""
        if not self.limits:
            return None
        return sum(k.compute_s for k in self.kinds) / self.seconds

    @property
    def bottleneck(self) -> str:
        """One sentence."""
        if not self.phase or not self.limits:
            return ""
        return bottleneck(self.phase, self.limits, max(self.seconds, self.phase.seconds))


def measure(
    model: Model, tests: Sequence[Test], repetitions: int, progress: Progress | None = None
) -> list[Measured]:
    """Measure every test in turn.

    Args:
        model: with room for the longest test and one token more.
        tests: at least one; each has tokens to read or to answer.
        repetitions: of each test that count.
        progress: called with tests done and their number.
    """
    backend = model.backend
    roofs = Roofs(backend.stepper.loaded.pool) if isinstance(backend, KernelBackend) else None
    read: list[float] = []
    found: list[tuple[Test, list[float], Recorder | None]] = []
    for i, test in enumerate(tests):
        if progress is not None:
            progress(i, len(tests))
        with model.session() as past:
            if test.depth:
                past.feed(_ids(model, test.depth, 0))
            seconds = []
            for k in range(repetitions + 1):
                seconds.append(_once(model, past, test, k))
                if roofs is not None:
                    read.append(roofs.bandwidth())
            profiles = [_profile(model, past, test, repetitions + 1 + k) for k in range(PROFILED)]
            found.append((test, seconds[1:], _least(profiles)))
    known = limits(roofs) if roofs is not None else None
    if known is not None:
        known = Limits(max([known.read, *read]), known.peaks)
    return [_measured(test, seconds, recorder, known) for test, seconds, recorder in found]


def _least(profiles: Sequence[Recorder | None]) -> Recorder | None:
    """The one whose rows took least time: what other programs do is not the model's."""
    made = [p for p in profiles if p is not None]
    return min(made, key=lambda p: p.seconds) if made else None


def _measured(
    test: Test, seconds: Sequence[float], recorder: Recorder | None, known: Limits | None
) -> Measured:
    n = test.prompt or test.answer
    phase = phases(recorder, known)[0] if recorder is not None and known is not None else None
    return Measured(test, tuple(n / s for s in seconds), statistics.median(seconds), phase, known)


def _once(model: Model, past: Session, test: Test, repetition: int) -> float:
    """Seconds of one repetition, without what stands before it."""
    parts = _parts(model, test, repetition)
    with past.fork() as session:
        begin = time.perf_counter()
        for ids in parts:
            session.feed(ids, copy=False)
        return time.perf_counter() - begin


def _profile(model: Model, past: Session, test: Test, repetition: int) -> Recorder | None:
    """What the rows of one more repetition took."""
    backend = model.backend
    if not isinstance(backend, KernelBackend):
        return None
    recorder = Recorder(backend.stepper.loaded.tape.rows)
    with past.fork() as session, backend.turn():
        for ids in _parts(model, test, repetition):
            session.extend(ids, recorder=recorder, view=True)
    return recorder


def _parts(model: Model, test: Test, repetition: int) -> list[list[int]]:
    """What is fed at a time: a whole prompt, or an answer's tokens one by one."""
    ids = _ids(model, test.prompt or test.answer, 1 + repetition)
    return [ids] if test.prompt else [[i] for i in ids]


def _ids(model: Model, n: int, seed: int) -> list[int]:
    """Ids all over the vocabulary, the same in every run."""
    n_vocab = int(model.info.n_vocab)
    return [(seed * 7919 + i * 104_729) % n_vocab for i in range(n)]
