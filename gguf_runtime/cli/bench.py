"""`bench`: speed of prompt and answer, in rows that llama-bench's readers know."""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli.load import load
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.hub.resolve import resolve

if TYPE_CHECKING:
    from gguf_runtime import Model

PROBE_BYTES = 256 << 20  # larger than any last-level cache that matters
PROBES = 4
HEAD = ("model", "type", "threads", "isa", "test", "t/s", "first token s", "GB/s", "of memory")


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
class Row:
    """Repetitions of one test; tokens per second unless said otherwise."""

    test: str
    n_tokens: int
    mean: float
    sd: float
    median: float
    samples: tuple[float, ...]
    first_token_s: float | None
    gb_per_s: float | None
    memory_share: float | None


def bench(
    model: o.ModelArg,
    prompt: Annotated[
        str,
        typer.Option(
            "--n-prompt",
            "-p",
            metavar="N,…",
            rich_help_panel="answer",
            help="tokens of prompts to read; 0: none",
        ),
    ] = "512",
    answer: Annotated[
        str,
        typer.Option(
            "--n-gen", "-n", metavar="N,…", rich_help_panel="answer", help="tokens to decode"
        ),
    ] = "128",
    depth: Annotated[
        str,
        typer.Option(
            "--n-depth",
            "-d",
            metavar="N,…",
            rich_help_panel="answer",
            help="tokens that stand in the context before",
        ),
    ] = "0",
    repetitions: Annotated[
        int,
        typer.Option(
            "--repetitions", "-r", metavar="N", min=1, rich_help_panel="answer", help="of each row"
        ),
    ] = 5,
    form: Annotated[
        Literal["md", "csv", "json"],
        typer.Option("--output", "-o", rich_help_panel="output", help="form of the table"),
    ] = "md",
    threads: o.Threads = None,
    cache_type: o.CacheTypeOption = "f16",
    precision: o.PrecisionOption = "int8",
    max_memory: o.MaxMemory = None,
) -> None:
    """Speed of reading prompts (pp) and of answering (tg), mean ± standard deviation.

    A row is measured after one repetition that does not count. GB/s are the weights that pass per
    second while answering; "of memory" is their share of the read bandwidth measured in this run.
    """
    terminal = current()
    tests = _tests(_numbers("-p", prompt), _numbers("-n", answer), _numbers("-d", depth))
    need = max(t.prompt + t.answer + t.depth for t in tests)
    weights = _weight_bytes(model)
    machine = {"threads": threads, "cache_type": cache_type, "precision": precision}
    with load(terminal, model, context=str(need + 1), max_memory=max_memory, **machine) as m:
        limit = read_bandwidth(int(m.threads))
        rows = []
        for i, test in enumerate(tests):
            terminal.progress("measuring", i, len(tests))
            rows.append(_measure(m, test, repetitions, weights, limit))
        terminal.clear()
        facts = {
            "model": model,
            "type": m.info.type,
            "threads": m.threads,
            "isa": m.isa,
            "precision": precision,
            "cache_type": cache_type,
            "weight_bytes": weights,
            "read_gb_per_s": limit / 1e9,
        }
    _print(terminal, form, facts, rows)


def read_bandwidth(threads: int) -> float:
    """Bytes per second that this machine reads from memory: numpy's max over more than a cache."""
    import numpy as np

    parts = np.array_split(np.ones(PROBE_BYTES // 4, np.uint32), threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(PROBES):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, PROBE_BYTES / (time.perf_counter() - begin))
    return best


def _measure(m: Model, test: Test, repetitions: int, weights: int, limit: float) -> Row:
    seconds = [_once(m, test) for _ in range(repetitions + 1)][1:]
    n = test.prompt or test.answer
    speeds = tuple(n / s for s in seconds)
    mean = statistics.fmean(speeds)
    moved = weights * mean if test.answer else None
    return Row(
        test=test.name,
        n_tokens=n,
        mean=mean,
        sd=statistics.stdev(speeds) if len(speeds) > 1 else 0.0,
        median=statistics.median(speeds),
        samples=speeds,
        first_token_s=statistics.median(seconds) if test.prompt else None,
        gb_per_s=moved / 1e9 if moved else None,
        memory_share=moved / limit if moved else None,
    )


def _once(m: Model, test: Test) -> float:
    """Seconds of one repetition, without what stands before it."""
    session: Any = m.session()
    if test.depth:
        session.feed(_ids(m, test.depth, 1))
    begin = time.perf_counter()
    if test.prompt:
        session.feed(_ids(m, test.prompt, 2))
    else:
        for i in _ids(m, test.answer, 3):
            session.feed([i])
    return time.perf_counter() - begin


def _ids(m: Model, n: int, seed: int) -> list[int]:
    """Ids all over the vocabulary, the same in every run."""
    n_vocab = int(m.info.n_vocab)
    return [(seed * 7919 + i * 104_729) % n_vocab for i in range(n)]


def _tests(prompts: Sequence[int], answers: Sequence[int], depths: Sequence[int]) -> list[Test]:
    found = [Test(n, 0, d) for d in depths for n in prompts if n]
    found += [Test(0, n, d) for d in depths for n in answers if n]
    if not found:
        raise UsageError("nothing to measure", "give -p or -n a number above 0")
    return found


def _numbers(option: str, text: str) -> list[int]:
    try:
        found = [int(x) for x in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise UsageError(f"{option}: not numbers", f"expected 512 or 128,512, got {text!r}")
    return found


def _weight_bytes(model: str) -> int:
    """Bytes of the file that are read for each token: all tensors, of an untied embedding no row."""
    from gguf_runtime.gguf import open_file

    with open_file(resolve(model)) as file:
        sizes = {name: t.size_bytes for name, t in file.tensors.items()}
    if "output.weight" in sizes:
        sizes.pop("token_embd.weight", None)
    return sum(sizes.values())


def _print(terminal: Terminal, form: str, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    if form == "json":
        tests = [asdict(r) for r in rows]
        terminal.line(dumps({"schema_version": 1, **facts, "rows": tests}))
        return
    cells = [HEAD, *(_cells(facts, r) for r in rows)]
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(cells)
        terminal.write(out.getvalue())
        return
    widths = [max(len(r[i]) for r in cells) for i in range(len(HEAD))]
    for i, row in enumerate(cells):
        terminal.line(
            "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        )
        if i == 0:
            terminal.line("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    terminal.say(
        f"memory reads {facts['read_gb_per_s']:.1f} GB/s on {facts['threads']} threads;"
        f" a token reads {facts['weight_bytes'] / 1e6:,.0f} MB of weights"
    )


def _cells(facts: dict[str, Any], r: Row) -> tuple[str, ...]:
    def shown(value: float | None, form: Callable[[float], str]) -> str:
        return "" if value is None else form(value)

    return (
        str(facts["model"]),
        str(facts["type"]),
        str(facts["threads"]),
        str(facts["isa"]),
        r.test,
        f"{r.mean:.2f} ± {r.sd:.2f}",
        shown(r.first_token_s, lambda x: f"{x:.3f}"),
        shown(r.gb_per_s, lambda x: f"{x:.2f}"),
        shown(r.memory_share, lambda x: f"{100 * x:.0f} %"),
    )
