"""A Markdown table, drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

from gguf_runtime.cli.talk.inline import spans

_CELL = re.compile(r"(?:\\.|`[^`]*`|[^|\\])+|\\")


def drawn(rows: Sequence[str], width: int) -> str:
    """A header, a row of dashes that says how columns are aligned, and rows; ends with a newline."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    header, dashes, *body = [_cells(r) for r in rows]
    table = Table(box=box.ROUNDED, header_style="bold", show_lines=False)
    for k, name in enumerate(header):
        mark = dashes[k] if k < len(dashes) else ""
        left, right = mark.startswith(":"), mark.endswith(":")
        table.add_column(
            Text.from_ansi(_ansi(name)),
            justify="center" if left and right else "right" if right else "left",
            overflow="fold",
        )
    for row in body:
        cells = [*row, *[""] * len(header)][: max(len(header), 1)]
        table.add_row(*(Text.from_ansi(_ansi(c)) for c in cells))
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        _environ={},
    )
    console.print(table)
    return out.getvalue()


def _cells(row: str) -> list[str]:
    text = row.strip().removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    found, at = [], 0
    while at <= len(text):
        parts = []
        while at < len(text) and text[at] != "|":
            match = _CELL.match(text, at)
            assert match is not None
            parts.append(match[0])
            at = match.end()
        found.append("".join(parts).strip())
        at += 1
    return found


def _ansi(text: str) -> str:
    return "".join(f"{style}{t}\x1b[0m" if style else t for t, style in spans(text)[0])
