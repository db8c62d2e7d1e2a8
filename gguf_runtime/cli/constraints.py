"""Options that constrain an answer, and the files that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gguf_runtime.errors import FileError, RequestError

MOST_BYTES = 16 << 20
NAMES = ("schema", "regex", "grammar", "choice", "choices")

Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        "--json-schema",
        metavar="FILE",
        rich_help_panel="constraint",
        help="the answer is JSON that this schema allows; a file, or the schema itself",
    ),
]
Regex = Annotated[
    str | None,
    typer.Option(
        "--regex",
        metavar="TEXT",
        rich_help_panel="constraint",
        help="the whole answer matches this expression",
    ),
]
Grammar = Annotated[
    str | None,
    typer.Option(
        "--grammar",
        "--grammar-file",
        metavar="FILE",
        rich_help_panel="constraint",
        help="the answer is a sentence of this GBNF grammar",
    ),
]
Choice = Annotated[
    list[str] | None,
    typer.Option(
        "--choice",
        metavar="TEXT",
        rich_help_panel="constraint",
        help="the answer is one of these; repeatable",
    ),
]
Choices = Annotated[
    str | None,
    typer.Option(
        "--choices",
        metavar="FILE",
        rich_help_panel="constraint",
        help="as --choice, one a line",
    ),
]


def asked(
    schema: str | None,
    regex: str | None,
    grammar: str | None,
    choice: list[str] | None,
    choices: str | None,
) -> dict[str, Any]:
    """What the engine takes; files are read."""
    found: dict[str, Any] = {}
    if schema is not None:
        found["schema"] = schema if schema.lstrip()[:1] in ("{", "[") else _read(schema)
    if regex is not None:
        found["regex"] = regex
    if grammar is not None:
        found["grammar"] = grammar if "::=" in grammar else _read(grammar)
    if choice or choices is not None:
        lines = _read(choices).splitlines() if choices is not None else []
        found["choices"] = [*(choice or ()), *(line for line in lines if line.strip())]
    return found


def _read(name: str) -> str:
    try:
        with Path(name).open("rb") as f:
            raw = f.read(MOST_BYTES + 1)
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=name) from e
    if len(raw) > MOST_BYTES:
        raise RequestError("too long", where=name, expected=f"at most {MOST_BYTES >> 20} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RequestError(f"byte {e.start:,} is not UTF-8", where=name) from None
