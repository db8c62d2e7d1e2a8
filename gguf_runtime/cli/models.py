"""`pull`, `list` and `rm`: models by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.prompt import stdin_is_terminal
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import current
from gguf_runtime.errors import MachineError, escape
from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.resolve import models_in, size, size_on_disk

Row = tuple[str, ...]


def pull_model(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="a name that `list` shows, or hf:ORG/REPO[:QUANT or :FILE]"
        ),
    ],
    offline: Annotated[
        bool, typer.Option("--offline", help="never use the network", rich_help_panel="machine")
    ] = False,
) -> None:
    """Fetch a model, check its digest, and put it into place at once.

    What was fetched before an interruption is not fetched again. Of a repository of the hub the
    Q4_K_M file is taken unless another one is named. Prints the path of the file.
    """
    terminal = current()
    if name.lower().startswith("hf:"):
        terminal.line(str(_pull_from_hub(name, offline)))
        return
    from gguf_runtime.hub.puller import pull

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


def _pull_from_hub(text: str, offline: bool) -> Path:
    from gguf_runtime.hub import hubapi, hubcache, hubpull
    from gguf_runtime.hub.places import network_is_off

    terminal = current()
    name = hubcache.parse(text)
    if offline or network_is_off():
        there = hubcache.find(name)
        if there is not None:
            return there
    offer = hubapi.look(name, offline=offline)
    terminal.say(f"pulling {name}: {escape(offer.choice.file)}, {describe(offer)}")
    path = hubpull.pull(name, offer, progress=terminal.progress)
    terminal.clear()
    terminal.say(f"{name} is ready, its sha256 is the hub's")
    return path


def describe(offer: object) -> str:
    """Size, parts and licence of what the hub offers."""
    from gguf_runtime.hub.hubapi import Offer

    assert isinstance(offer, Offer)
    parts = f" in {len(offer.files):,} parts" if len(offer.files) > 1 else ""
    return f"{size(offer.size_bytes)}{parts}, licence {escape(offer.licence)}"


def list_models(
    found: Annotated[
        bool,
        typer.Option(
            "--found",
            help="also those of the hub's cache, ollama and LM Studio, which run where they are",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object", rich_help_panel="output")
    ] = False,
) -> None:
    """Models that can be pulled by name, and those that are on this machine."""
    terminal = current()
    others = _others()
    elsewhere = _elsewhere() if found else []
    if as_json:
        models = [_row(e) for e in entries().values()] + [_other(p) for p in others]
        facts = {"schema_version": 1, "folder": str(models_dir()), "models": models}
        if found:
            facts["found"] = elsewhere
        terminal.line(dumps(facts))
        return
    rows: list[Row] = [("NAME", "ARCHITECTURE", "TYPE", "SIZE", "LICENCE", "STATE")]
    rows += [
        (e.name, e.architecture, e.type, size(e.size_bytes), e.licence, _state(e))
        for e in entries().values()
    ]
    rows += [(escape(p.stem), "", "", size(size_on_disk(p)), "", "ready") for p in others]
    _table(rows)
    if not found:
        return
    terminal.line()
    if not elsewhere:
        terminal.line("nothing found in the hub's cache, in ollama's store or with LM Studio")
        return
    rows = [("FOUND", "SIZE", "IN")]
    for r in elsewhere:
        rows += [(escape(str(r["name"])), size(int(str(r["size_bytes"]))), str(r["source"]))]
    _table(rows)


def remove_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a model that was pulled")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete a model that `pull` put there, and nothing else."""
    from gguf_runtime.hub.remover import plan, remove

    terminal = current()
    removal = plan(name)
    what = f"{removal.name} ({size(removal.size_bytes)})"
    if not yes:
        if not (stdin_is_terminal() and terminal.err_is_terminal):
            raise UsageError(
                f"whether to delete {what} cannot be asked: this is no terminal",
                f"to do it: gguf-runtime rm {name} --yes",
            )
        for path in removal.files:
            terminal.say(f"  {path}")
        terminal.ask(f"delete {what}? [y/N] ")
        try:
            answer = input().strip().lower()
        except EOFError:
            answer = ""
        if answer not in ("y", "yes"):
            terminal.say("nothing was deleted")
            return
    try:
        remove(removal)
    except OSError as e:
        raise MachineError(
            f"this file cannot be deleted: {(e.strerror or str(e)).lower()}",
            where=e.filename,
            hint="may you write in its folder?",
        ) from e
    terminal.say(f"deleted {what}")


def _table(rows: list[Row]) -> None:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (c.ljust(w) for c, w in zip(row, widths, strict=True))
        current().line("  ".join(cells).rstrip())


def _state(e: Entry) -> str:
    from gguf_runtime.hub.stage import held_bytes, stage_of

    if e.present:
        return "ready"
    held = held_bytes(stage_of(e.path.parent, e.name))
    return (f"{size(held)} fetched, go on: " if held else "") + f"gg pull {e.name}"


def _others() -> list[Path]:
    """Files in the folder of models that the catalog does not know."""
    folder = models_dir()
    known = {e.file for e in entries().values()}
    return [p for p in models_in(folder) if p.name not in known] if folder.is_dir() else []


def _elsewhere() -> list[dict[str, object]]:
    from gguf_runtime.hub.found import found

    return [
        {"name": f.name, "size_bytes": f.size_bytes, "source": f.source, "path": str(f.path)}
        for f in found()
    ]


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
    return {"name": p.stem, "size_bytes": size_on_disk(p), "present": True, "path": str(p)}
