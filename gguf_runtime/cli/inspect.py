"""`inspect`: the facts of a model file of any architecture."""

from __future__ import annotations

from typing import Annotated

import typer

from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import current
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
) -> None:
    """What is in a model file: shape, types, bits per weight, tokenizer, and whether it runs here."""
    terminal = current()
    path = resolve(model)
    from gguf_runtime.arch import ARCHITECTURES
    from gguf_runtime.gguf import open_file, report

    with open_file(path) as file:
        for n in file.notices:
            terminal.notice(n.code, n.message)
        if as_json:
            facts = report.as_dict(file, supported=ARCHITECTURES, kv=kv, tensors=tensors)
            terminal.line(dumps(facts))
        else:
            terminal.write(report.describe(file, supported=ARCHITECTURES, kv=kv, tensors=tensors))
