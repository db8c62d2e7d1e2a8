"""Where the time of requests went: every kind of row of the tape, and what limits it.

A row's *limit* is the time that memory takes to read its weights and its part of the cache, or that
the registers take for its multiply-adds, whichever is longer, both at the speeds that were measured
on the same threads. Prompt and answer are apart: a step of which every token wants logits (one
token, or drafts that are verified) belongs to the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.backend import Backend, KernelBackend
from gguf_runtime.engine.completion import Completion

if TYPE_CHECKING:
    from gguf_runtime.graph.calls import Cost
    from gguf_runtime.graph.schedule import Run
    from gguf_runtime.graph.tape import RowFacts
    from quant.roofs import Limits

F64 = NDArray[np.float64]
Finished = Callable[[Completion], None]
PhaseName = Literal["prompt", "answer"]
PHASES: tuple[PhaseName, ...] = ("prompt", "answer")

MEMORY = "memory"  # what limits a kind of row, beside the peaks of `quant.roofs.PEAKS`


@dataclass(slots=True)
class Seen:
    """What attention with one window was about."""

    positions: int = 0  # read, each once a step
    pairs: int = 0  # of a token and a position that it sees


class Counted:
    """Seconds of every row, and what the steps of one phase were about."""

    def __init__(self, n_rows: int) -> None:
        self.seconds: F64 = np.zeros(n_rows, np.float64)
        self.tokens = self.outputs = self.steps = self.output_steps = 0
        self.seen: dict[int, Seen] = {}

    def add(self, tokens: int, outputs: int, runs: Sequence[Run], windows: Iterable[int]) -> None:
        """One step."""
        self.tokens += tokens
        self.outputs += outputs
        self.steps += 1
        self.output_steps += outputs > 0
        for window in windows:
            seen = self.seen.setdefault(window, Seen())
            for run in runs:
                end = run.pos + run.n
                seen.positions += end - (max(0, run.pos - window + 1) if window else 0)
                each = range(run.pos + 1, end + 1)
                seen.pairs += sum(min(p, window) for p in each) if window else sum(each)


class Recorder:
    """Told about every step, by `Stepper.step`."""

    def __init__(self, rows: Sequence[RowFacts]) -> None:
        self.rows = rows
        self.phase: PhaseName | None = None  # None: an answer's steps want logits of all tokens
        self.phases = {name: Counted(len(rows)) for name in PHASES}
        self._windows = sorted({c.window for row in rows for c in row.costs if c.key_macs})
        self._now: F64 = np.zeros(len(rows), np.float64)

    @property
    def seconds(self) -> float:
        """Of all rows of all steps."""
        return float(sum(phase.seconds.sum() for phase in self.phases.values()))

    def add(self, first: int, seconds: F64) -> None:
        """Rows of a step from `first` on."""
        self._now[first : first + len(seconds)] = seconds

    def count(self, tokens: int, outputs: int, runs: Sequence[Run]) -> None:
        """The step was carried out whole."""
        phase = self.phases[self.phase or ("answer" if outputs == tokens else "prompt")]
        phase.seconds += self._now
        phase.add(tokens, outputs, runs, self._windows)


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of one kind, over all layers and steps of a phase.

    compute_s  what their multiply-adds take in registers
    limit_s    what they would take at their limit, 0 where nothing is known of it
    bound      what that limit is: "memory" or one of `quant.roofs.PEAKS`
    """

    name: str
    op: str
    weights: str
    rows: int
    seconds: float
    n_bytes: int
    n_macs: int
    compute_s: float
    limit_s: float
    bound: str

    @property
    def of_limit(self) -> float | None:
        """Share of the limit that was reached."""
        return self.limit_s / self.seconds if self.limit_s and self.seconds else None


@dataclass(frozen=True, slots=True)
class Phase:
    """All kinds of rows of a phase, the slowest first."""

    name: PhaseName
    tokens: int
    steps: int
    kinds: tuple[Kind, ...]

    @property
    def seconds(self) -> float:
        """Of all rows."""
        return sum(k.seconds for k in self.kinds)

    @property
    def n_bytes(self) -> int:
        """Weights and cache that were read."""
        return sum(k.n_bytes for k in self.kinds)

    @property
    def n_macs(self) -> int:
        """Multiply-adds of matmuls and attention."""
        return sum(k.n_macs for k in self.kinds)


def phases(recorder: Recorder, limits: Limits) -> list[Phase]:
    """What was recorded, of the phases that had steps."""
    out = []
    for name, counted in recorder.phases.items():
        if counted.steps:
            kinds = _kinds(recorder.rows, counted, limits)
            out.append(Phase(name, counted.tokens, counted.steps, kinds))
    return out


def _kinds(rows: Sequence[RowFacts], counted: Counted, limits: Limits) -> tuple[Kind, ...]:
    groups: dict[str, list[tuple[RowFacts, float]]] = {}
    for fact, seconds in zip(rows, counted.seconds.tolist(), strict=True):
        if seconds > 0:
            groups.setdefault(_kind(fact), []).append((fact, seconds))
    kinds = [_sum(name, group, counted, limits) for name, group in groups.items()]
    return tuple(sorted(kinds, key=lambda k: -k.seconds))


def _sum(name: str, group: list[tuple[RowFacts, float]], counted: Counted, limits: Limits) -> Kind:
    n_bytes = n_macs = 0
    computing = limit = 0.0
    by: dict[str, float] = {}  # seconds by what limits
    weights: dict[str, None] = {}
    for fact, _ in group:
        read, macs, compute = 0, 0, 0.0
        for cost in fact.costs:
            b, m = _work(cost, fact.counts, counted)
            read, macs = read + b, macs + m
            compute += m * cost.planes / limits.peaks[cost.peak]
            weights.update({cost.weights: None} if cost.weights else {})
        if not fact.costs:
            continue
        memory = read / limits.read
        n_bytes, n_macs, computing = n_bytes + read, n_macs + macs, computing + compute
        limit += max(memory, compute)
        bound = MEMORY if memory >= compute else fact.costs[0].peak
        by[bound] = by.get(bound, 0.0) + max(memory, compute)
    seconds = sum(s for _, s in group)
    what = max(by, key=lambda x: by[x]) if by else ""
    op, names = group[0][0].op, " ".join(weights)
    return Kind(name, op, names, len(group), seconds, n_bytes, n_macs, computing, limit, what)


def _work(cost: Cost, counts: str, counted: Counted) -> tuple[int, int]:
    """(bytes, multiply-adds) of all steps."""
    if cost.key_macs:
        seen = counted.seen[cost.window]
        return cost.key_bytes * seen.positions, cost.key_macs * seen.pairs
    n, steps = counted.tokens, counted.steps
    if counts == "outputs":
        n, steps = counted.outputs, counted.output_steps
    return cost.n_bytes * steps, cost.n_macs * n


def token_bytes(rows: Sequence[RowFacts], pos: int) -> int:
    """What a step with the token at `pos` alone reads: packed weights, and keys and values."""
    from gguf_runtime.graph.schedule import Run

    counted = Counted(len(rows))
    counted.add(1, 1, [Run(0, 1, pos)], {c.window for row in rows for c in row.costs})
    return sum(_work(cost, row.counts, counted)[0] for row in rows for cost in row.costs)


def _kind(fact: RowFacts) -> str:
    """The row's name without its layer, so that layers add up."""
    words = [w for w in fact.name.split() if not w.startswith("blk.")]
    if fact.op == "norm":
        return "norm"
    return " ".join(words) or fact.op


def profiled(backend: Backend, finished: Finished) -> tuple[Recorder | None, Finished]:
    """A recorder, and what writes its table into the completion at the end.

    Exact arithmetic has no rows to time.
    """
    if not isinstance(backend, KernelBackend):
        return None, finished
    recorder = Recorder(backend.stepper.loaded.tape.rows)

    def done(out: Completion) -> None:
        try:
            if out.finish_reason not in ("interrupted", "error"):
                from gguf_runtime.engine.profile_text import table

                limits = backend.roofs()
                out.profile = table(phases(recorder, limits), limits)
        finally:
            finished(out)

    return recorder, done
