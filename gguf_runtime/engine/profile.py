"""Where the time of a request went: one line per kind of row, prompt and answer apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.backend import Backend, KernelBackend
from gguf_runtime.engine.completion import Completion

if TYPE_CHECKING:
    from gguf_runtime.graph.tape import RowFacts
    from quant.roofs import Limits

F64 = NDArray[np.float64]
Finished = Callable[[Completion], None]


class Recorder:
    """Seconds of every row, tokens and steps, for steps of many tokens and of one."""

    def __init__(self, n_rows: int) -> None:
        self.seconds = {k: np.zeros(n_rows, np.float64) for k in ("prompt", "answer")}
        self.tokens = {"prompt": 0, "answer": 0}
        self.outputs = {"prompt": 0, "answer": 0}
        self.steps = {"prompt": 0, "answer": 0}
        self._now = np.zeros(n_rows, np.float64)

    def add(self, first: int, seconds: F64) -> None:
        """Rows of a step from `first` on."""
        self._now[first : first + len(seconds)] = seconds

    def count(self, tokens: int, outputs: int) -> None:
        """The step was carried out whole."""
        k = "prompt" if tokens > 1 else "answer"
        self.seconds[k] += self._now
        self.tokens[k] += tokens
        self.outputs[k] += outputs
        self.steps[k] += 1


def profiled(backend: Backend, finished: Finished) -> tuple[Recorder | None, Finished]:
    """A recorder, and what writes its table into the completion at the end.

    Exact arithmetic has no rows to time.
    """
    if not isinstance(backend, KernelBackend):
        return None, finished
    rows = backend.stepper.loaded.tape.rows
    recorder = Recorder(len(rows))

    def done(out: Completion) -> None:
        try:
            if out.finish_reason not in ("interrupted", "error"):
                out.profile = table(rows, recorder, backend.roofs())
        finally:
            finished(out)

    return recorder, done


def table(rows: list[RowFacts], r: Recorder, roofs: Limits) -> str:
    """Lines of text; roofs: bytes per second of memory, multiply-adds per second of the int8 units."""
    lines = [
        f"measured limits: memory {roofs.read / 1e9:.1f} GB/s, int8 {roofs.peaks['dot'] / 1e9:.0f} GMAC/s",
    ]
    for phase in ("prompt", "answer"):
        if not r.steps[phase]:
            continue
        lines.append(_head(phase, r))
        lines += _phase(rows, r, phase, roofs)
    return "\n".join(lines)


def _head(phase: str, r: Recorder) -> str:
    total = float(r.seconds[phase].sum())
    return (
        f"{phase}: {r.tokens[phase]:,} tokens in {r.steps[phase]:,} steps, {total * 1e3:,.1f} ms\n"
        f"  {'row':<44}{'rows':>5}{'ms':>10}{'share':>8}{'GB/s':>8}{'GMAC/s':>9}{'of limit':>10}"
    )


def _phase(rows: list[RowFacts], r: Recorder, phase: str, roofs: Limits) -> list[str]:
    groups: dict[str, list[float]] = {}
    for fact, s in zip(rows, r.seconds[phase].tolist(), strict=True):
        n = r.tokens[phase] if fact.counts == "tokens" else r.outputs[phase]
        steps = r.steps[phase] if n else 0
        g = groups.setdefault(_kind(fact), [0.0, 0.0, 0.0, 0.0])
        g[0] += 1
        g[1] += s
        g[2] += fact.n_bytes * steps
        g[3] += fact.n_macs * n
    total = sum(g[1] for g in groups.values()) or 1.0
    lines = []
    for name, (count, s, n_bytes, macs) in sorted(groups.items(), key=lambda x: -x[1][1]):
        if s <= 0:
            continue
        line = f"  {name:<44}{count:>5.0f}{s * 1e3:>10.2f}{100 * s / total:>7.1f}%"
        if macs:
            rates = n_bytes / s, macs / s
            share = max(rates[0] / roofs.read, rates[1] / roofs.peaks["dot"])
            line += f"{rates[0] / 1e9:>8.1f}{rates[1] / 1e9:>9.1f}{100 * share:>9.0f}%"
        lines.append(line)
    return lines


def _kind(fact: RowFacts) -> str:
    """The row's name without its layer, so that layers add up."""
    words = [w for w in fact.name.split() if not w.startswith("blk.")]
    if fact.op == "norm":
        return "norm"
    return " ".join(words) or fact.op
