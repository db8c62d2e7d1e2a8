"""`pull` and `list`: models by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gguf_runtime.cli.terminal import current
from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.resolve import models_in, size


def pull_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a name that `list` shows")],
    offline: Annotated[
        bool, typer.Option("--offline", help="never use the network", rich_help_panel="machine")
    ] = False,
) -> None:
    """Fetch a model of the catalog, check its digest, and put it into place at once.

    What was fetched before an interruption is not fetched again. Prints the path of the file.
    """
    from gguf_runtime.hub.puller import pull

    terminal = current()
    entry = find(name)
    fetched = entry is not None and not entry.present
    if entry is not None and fetched and not offline:
        note = f": {entry.licence_note}" if entry.licence_note else ""
        terminal.say(
            f"pulling {entry.name}: {entry.title}, {size(entry.download_bytes)},"
            f" licence {entry.licence}{note}"
        )
    path = pull(name, progress=terminal.progress, offline=offline)
    terminal.clear()
    if fetched:
        terminal.say(f"{name} is ready, its sha256 is the catalog's")
    terminal.line(str(path))


def list_models(
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object", rich_help_panel="output")
    ] = False,
) -> None:
    """Models that can be pulled by name, and those that are on this machine."""
    terminal = current()
    others = _others()
    if as_json:
        models = [_row(e) for e in entries().values()] + [_other(p) for p in others]
        facts = {"schema_version": 1, "folder": str(models_dir()), "models": models}
        terminal.line(json.dumps(facts, ensure_ascii=False))
        return
    head = ("NAME", "ARCHITECTURE", "TYPE", "SIZE", "LICENCE", "STATE")
    rows = [head]
    for e in entries().values():
        state = "ready" if e.present else f"gg pull {e.name}"
        rows.append((e.name, e.architecture, e.type, size(e.size_bytes), e.licence, state))
    rows += [(p.stem, "", "", size(p.stat().st_size), "", "ready") for p in others]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for row in rows:
        terminal.line("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def _others() -> list[Path]:
    """Files in the folder of models that the catalog does not know."""
    folder = models_dir()
    known = {e.file for e in entries().values()}
    return [p for p in models_in(folder) if p.name not in known] if folder.is_dir() else []


def _row(e: Entry) -> dict[str, object]:
    return {
        "name": e.name,
        "title": e.title,
        "architecture": e.architecture,
        "type": e.type,
        "size_bytes": e.size_bytes,
        "licence": e.licence,
        "present": e.present,
        "path": str(e.path) if e.present else None,
    }


def _other(p: Path) -> dict[str, object]:
    return {"name": p.stem, "size_bytes": p.stat().st_size, "present": True, "path": str(p)}
