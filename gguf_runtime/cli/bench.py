"""`bench`: speed of prompt and answer, in rows that llama-bench's readers know."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli.load import load
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current

if TYPE_CHECKING:
    from gguf_runtime.engine.measure import Measured, Test

HEAD = (
    *("model", "type", "threads", "isa", "test", "t/s", "first token s"),
    *("GB/s", "of memory", "GMAC/s", "of peak"),
)


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
    pack_cache: o.PackCache = False,
) -> None:
    """Speed of reading prompts (pp) and of answering (tg), mean ± standard deviation.

    A row is measured after one repetition that does not count. GB/s are packed weights and cache
    that are read per second, GMAC/s the multiply-adds of matmuls and attention; their shares are
    of limits that were measured on the same threads in between. Where the time goes, more
    repetitions tell: kinds of rows with their share of their own limit, and the bottleneck.
    """
    from gguf_runtime.engine.measure import measure

    terminal = current()
    tests = _tests(_numbers("-p", prompt), _numbers("-n", answer), _numbers("-d", depth))
    need = max(t.prompt + t.answer + t.depth for t in tests)
    machine: dict[str, Any] = {"threads": threads, "cache_type": cache_type, "precision": precision}
    machine |= {"max_memory": max_memory, "pack_cache": pack_cache}
    with load(terminal, model, context=str(need + 1), **machine) as m:
        found = measure(m, tests, repetitions, lambda i, n: terminal.progress("measuring", i, n))
        terminal.clear()
        facts = {
            "model": model,
            "type": m.info.type,
            "threads": m.threads,
            "isa": m.isa,
            "precision": precision,
            "cache_type": cache_type,
        }
    if form == "json":
        terminal.line(dumps(_object(facts, found)))
    elif form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([HEAD, *(_cells(facts, r) for r in found)])
        terminal.write(out.getvalue())
    else:
        _print(terminal, facts, found)


def _tests(prompts: Sequence[int], answers: Sequence[int], depths: Sequence[int]) -> list[Test]:
    from gguf_runtime.engine.measure import Test

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


def _print(terminal: Terminal, facts: dict[str, Any], found: Sequence[Measured]) -> None:
    """A table of tests, then for each test its bottleneck and its rows."""
    from gguf_runtime.engine.profile_text import ROW_HEAD, limits_line, rows_table

    _table(terminal, [HEAD, *(_cells(facts, r) for r in found)])
    for r in found:
        if r.phase is not None:
            terminal.line(f"\n{r.test.name}, {r.bottleneck}\n")
            _table(terminal, [ROW_HEAD, *rows_table(r.phase, r.seconds)])
    if found[0].limits is not None:
        terminal.say(limits_line(found[0].limits))


def _table(terminal: Terminal, cells: Sequence[Sequence[str]]) -> None:
    widths = [max(len(r[i]) for r in cells) for i in range(len(cells[0]))]
    for i, row in enumerate(cells):
        words = (c.ljust(w) for c, w in zip(row, widths, strict=True))
        terminal.line("| " + " | ".join(words) + " |")
        if i == 0:
            terminal.line("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def _cells(facts: dict[str, Any], r: Measured) -> tuple[str, ...]:
    def shown(value: float | None, form: Callable[[float], str]) -> str:
        return "" if value is None else form(value)

    known = r.limits is not None
    return (
        str(facts["model"]),
        str(facts["type"]),
        str(facts["threads"]),
        str(facts["isa"]),
        r.test.name,
        f"{r.mean:.2f} ± {r.sd:.2f}",
        shown(r.first_token_s, lambda x: f"{x:.3f}"),
        f"{r.bytes_per_s / 1e9:.2f}" if known else "",
        shown(r.memory_share, lambda x: f"{100 * x:.0f} %"),
        f"{r.macs_per_s / 1e9:.1f}" if known else "",
        shown(r.compute_share, lambda x: f"{100 * x:.0f} %"),
    )


def _object(facts: dict[str, Any], found: Sequence[Measured]) -> dict[str, Any]:
    """Everything that was measured; units are in the names."""
    limits = found[0].limits
    known = None
    if limits is not None:
        peaks = {f"{kind}_gmac_per_s": x / 1e9 for kind, x in limits.peaks.items()}
        known = {"read_gb_per_s": limits.read / 1e9, **peaks}
    rows = [
        {
            "test": r.test.name,
            "n_tokens": r.n_tokens,
            "mean": r.mean,
            "sd": r.sd,
            "median": statistics.median(r.speeds),
            "samples": r.speeds,
            "first_token_s": r.first_token_s,
            "gb_per_s": r.bytes_per_s / 1e9 if known else None,
            "memory_share": r.memory_share,
            "gmac_per_s": r.macs_per_s / 1e9 if known else None,
            "compute_share": r.compute_share,
            "bottleneck": r.bottleneck or None,
            "profile": [
                {
                    "row": k.name,
                    "weights": k.weights or None,
                    "rows": k.rows,
                    "ms": k.seconds * 1e3,
                    "share": k.seconds / max(r.seconds, r.phase.seconds if r.phase else 0.0),
                    "gb_per_s": k.n_bytes / k.seconds / 1e9,
                    "gmac_per_s": k.n_macs / k.seconds / 1e9,
                    "of_limit": k.of_limit,
                    "limit": k.bound or None,
                }
                for k in r.kinds
            ],
        }
        for r in found
    ]
    return {"schema_version": 1, **facts, "limits": known, "rows": rows}
