"""`inspect`: the facts of a model file of any architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli.load import parse_context, parse_size
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.errors import ExitCode
from gguf_runtime.hub.resolve import resolve


def inspect(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="a GGUF file, a folder with one, or a model's name"),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="output", help="one JSON object")
    ] = False,
    tensors: Annotated[
        bool, typer.Option("--tensors", rich_help_panel="output", help="every tensor")
    ] = False,
    kv: Annotated[
        bool, typer.Option("--kv", rich_help_panel="output", help="all metadata")
    ] = False,
    context: o.Context = None,
    fits: Annotated[
        bool,
        typer.Option(
            "--fits",
            rich_help_panel="machine",
            help="the plan of memory; code 0 when the model fits this machine, 4 when not",
        ),
    ] = False,
    threads: o.Threads = None,
    cache_type: o.CacheTypeOption = None,
    precision: o.PrecisionOption = None,
    max_memory: o.MaxMemory = None,
    pack_cache: o.PackCache = False,
) -> ExitCode:
    """What is in a model file: shape, types, bits per weight, tokenizer, and whether it runs here.

    With -c or --fits also the plan of memory: what loading it with this context would take.
    """
    terminal = current()
    path = resolve(model)
    from gguf_runtime.arch import ARCHITECTURES
    from gguf_runtime.gguf import open_file, report

    with open_file(path) as file:
        for n in file.notices:
            terminal.notice(n.code, n.message)
        facts = report.as_dict(file, supported=ARCHITECTURES, kv=kv, tensors=tensors)
        text = report.describe(file, supported=ARCHITECTURES, kv=kv, tensors=tensors)
    if not as_json:
        terminal.write(text)
    if context is not None or fits:
        asked: dict[str, Any] = {"threads": threads, "pack_cache": pack_cache}
        asked |= {"max_memory": parse_size(max_memory)}
        asked |= {"cache_type": cache_type or "f16", "precision": precision or "int8"}
        memory = facts["memory"] = _memory(terminal, path, parse_context(context), asked)
        if not as_json:
            terminal.write("\n" + "".join(f"{line}\n" for line in _words(memory)))
    if as_json:
        terminal.line(dumps(facts))
    return ExitCode.MACHINE if fits and not facts["memory"]["fits"] else ExitCode.DONE


def _memory(terminal: Terminal, path: Path, context: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What loading would take, in bytes."""
    from gguf_runtime.engine.opening import foresee

    plan, notices, largest = foresee(path, context, **asked)
    for n in notices:
        terminal.notice(n.code, n.message)
    return {
        "context": plan.context,
        "weights_bytes": plan.weights,
        "cache_bytes": plan.cache,
        "buffers_bytes": plan.buffers,
        "program_bytes": plan.program,
        "total_bytes": plan.total,
        "mapped": plan.mapped,
        "available_bytes": plan.available,
        "fits": plan.fits,
        "largest_context": largest,
    }


def _words(m: dict[str, Any]) -> list[str]:
    lines = [f"memory, with a context of {m['context']:,} tokens"]
    how = " (mapped from a file: they may be dropped and read again)" if m["mapped"] else ""
    rows = [("weights", how), ("cache", ""), ("buffers", ""), ("program", ""), ("total", "")]
    rows.append(("available", ""))
    lines += [f"  {name:<14}{m[f'{name}_bytes'] / 1e6:>9,.0f} MB{more}" for name, more in rows]
    word = "yes" if m["fits"] else "no"
    if m["largest_context"]:
        more = f", up to -c {m['largest_context']}"
    else:
        rest = m["total_bytes"] - m["weights_bytes"]
        slow = not m["mapped"] and rest <= m["available_bytes"]
        more = f", with no context{'; from disk, slowly: --pack-cache' if slow else ''}"
    return [*lines, f"  {'fits':<14}{word}{more}"]
