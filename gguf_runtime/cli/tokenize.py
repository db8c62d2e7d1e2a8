"""`tokenize`: the ids and pieces that a model sees for a text."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.hub.resolve import resolve


def tokenize(
    model: o.ModelArg,
    prompt: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="taken literally; - is stdin")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            rich_help_panel="prompt",
            help="text that comes first; repeatable; - is stdin",
        ),
    ] = None,
    no_bos: Annotated[
        bool,
        typer.Option(
            "--no-bos", rich_help_panel="prompt", help="no start token, though the file wants one"
        ),
    ] = False,
    special: Annotated[
        bool,
        typer.Option(
            "--special", rich_help_panel="prompt", help="names of control tokens in the text count"
        ),
    ] = False,
    escape: Annotated[
        bool,
        typer.Option("--escape", rich_help_panel="prompt", help=r"read \n, \t, \xNN, \uNNNN"),
    ] = False,
    chat: Annotated[
        str | None,
        typer.Option(
            "--chat",
            metavar="FILE",
            rich_help_panel="prompt",
            help="a conversation in JSON, as the chat template renders it",
        ),
    ] = None,
    ids: Annotated[
        bool, typer.Option("--ids", rich_help_panel="output", help="ids alone, on one line")
    ] = False,
    count: Annotated[
        bool, typer.Option("--count", rich_help_panel="output", help="how many, and nothing else")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="output", help="one JSON object")
    ] = False,
) -> None:
    """The ids and pieces of a text, as `run --raw` would read it.

    The text comes from files, stdin and TEXT by the rules of `run`. One line per token: its id and
    its piece in quotes.
    """
    if ids + count + as_json > 1:
        raise UsageError("--ids, --count and --json exclude each other")
    terminal = current()
    if chat is not None:
        if prompt is not None or file or no_bos or special or escape:
            raise UsageError("--chat takes no other text, and no option of one")
        from gguf_runtime.cli.template import render

        _, found, pieces = render(terminal, model, prompts.messages(chat))
        _print(terminal, found, pieces, ids=ids, count=count, as_json=as_json)
        return
    missing = "no text", 'give it: gg tokenize MODEL "The quick brown fox"'
    text = prompts.gather(prompt, None, file or (), escape=escape, missing=missing)
    if text is None:
        raise UsageError(*missing)
    path = resolve(model)
    from gguf_runtime.text import Tokenizer

    tokenizer = Tokenizer.from_gguf(path)
    found = tokenizer.encode(text, add_special=not no_bos, parse_special=special)
    pieces = [tokenizer.piece(i, special=True).decode("utf-8", "backslashreplace") for i in found]
    _print(terminal, found, pieces, ids=ids, count=count, as_json=as_json)


def _print(
    terminal: Terminal,
    found: list[int],
    pieces: list[str],
    *,
    ids: bool,
    count: bool,
    as_json: bool,
) -> None:
    if count:
        terminal.line(str(len(found)))
    elif ids:
        terminal.line(" ".join(map(str, found)))
    else:
        if as_json:
            facts = {"schema_version": 1, "count": len(found), "ids": found, "pieces": pieces}
            terminal.line(dumps(facts))
            return
        width = max((len(str(i)) for i in found), default=1)
        for i, piece in zip(found, pieces, strict=True):
            terminal.line(f"{i:>{width}}  {json.dumps(piece, ensure_ascii=False)}")
