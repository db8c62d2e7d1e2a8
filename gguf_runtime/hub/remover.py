"""What `rm` may take away: files that `pull` put there, and what its unfinished tries left."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gguf_runtime.errors import ModelError, show
from gguf_runtime.hub import hubcache, ollama
from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.hubpull import fetched_blobs, write_ledger
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.quants import choices
from gguf_runtime.hub.stage import held_bytes, lock_file, stage_of


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to delete, and how many bytes that frees. `stage`: the work folder of a pull."""

    name: str
    files: tuple[Path, ...]
    size_bytes: int
    stage: Path | None = None
    repository: Path | None = None


def plan(name: str) -> Removal:
    """What deleting a model would take away; nothing is touched.

    Raises:
        ModelError: there is nothing of that name, or it was not put there by `pull`.
    """
    if ollama.is_ollama_name(name):
        raise ModelError(
            "this model is ollama's own",
            where=name,
            hint=f"ollama rm {name[len(ollama.PREFIX) :]}",
        )
    if hubcache.is_hub_name(name):
        return _of_hub(hubcache.parse(name))
    entry = find(name)
    if entry is not None:
        return _of_catalog(entry)
    near = suggestion(name, [e.name for e in entries().values() if e.path.exists()])
    for path in (Path(os.path.expanduser(name)), models_dir() / f"{name}.gguf"):
        if os.path.lexists(path):
            raise ModelError(
                "this file was not put here by pull, so it is not deleted",
                where=path,
                hint=f"delete it yourself: rm '{path}'",
            )
    raise ModelError(
        f"there is no model named {show(name)}",
        hint=f"did you mean {near}?" if near else "gguf-runtime list shows those on this machine",
    )


def remove(removal: Removal) -> None:
    """Do it. OSError where a file may not be deleted."""
    for path in removal.files:
        path.unlink(missing_ok=True)
    if removal.stage is not None:
        shutil.rmtree(removal.stage, ignore_errors=True)
        lock_file(removal.stage).unlink(missing_ok=True)
    if removal.repository is not None:
        gone = {p.name for p in removal.files}
        write_ledger(removal.repository, fetched_blobs(removal.repository) - gone)
        _prune(removal.repository)


def _of_catalog(entry: Entry) -> Removal:
    stage = stage_of(entry.path.parent, entry.name)
    held = held_bytes(stage)
    if entry.path.is_symlink():
        raise ModelError(
            "this link was not put here by pull, so it is not deleted",
            where=entry.path,
            hint=f"delete it yourself: rm '{entry.path}'",
        )
    there = entry.path.is_file()
    if not there and not stage.exists():
        raise ModelError(
            f"{entry.name} is not on this machine", hint="gguf-runtime list shows what is"
        )
    size = entry.path.stat().st_size if there else 0
    return Removal(entry.name, (entry.path,) if there else (), size + held, stage)


def _of_hub(name: hubcache.HubName) -> Removal:
    folder = hubcache.repo_dir(name.repo)
    path = hubcache.find(name)
    if folder is None or path is None:
        unfinished = sorted((folder / "blobs").glob("*.incomplete")) if folder is not None else []
        ours = fetched_blobs(folder) if folder is not None else set()
        if unfinished and name.want is None and not ours:
            total = sum(p.stat().st_size for p in unfinished)
            return Removal(str(name), tuple(unfinished), total, repository=folder)
        raise ModelError(
            f"{name} is not on this machine", hint="gguf-runtime list --found shows what is"
        )
    snapshot = next(p for p in path.parents if p.parent == folder / "snapshots")
    there = choices(hubcache.gguf_files(snapshot))
    relative = path.relative_to(snapshot).as_posix()
    choice = next(c for c in there if c.file == relative)
    blobs = [(snapshot / f).resolve() for f in choice.files]
    foreign = [b for b in blobs if b.name not in fetched_blobs(folder)]
    if foreign:
        raise ModelError(
            "this model was put into the hub's cache by another program, so it is not deleted",
            where=str(name),
            got=str(foreign[0]),
            hint=f"hf cache rm model/{name.repo} deletes the whole repository",
        )
    links = [
        link
        for other in hubcache.snapshots(name.repo)
        for link in (other / f for f in hubcache.gguf_files(other))
        if link.resolve() in blobs
    ]
    return Removal(str(name), (*links, *blobs), sum(b.stat().st_size for b in blobs), None, folder)


def _prune(folder: Path) -> None:
    """Take away folders that became empty, and the branch of a repository without files."""
    for parent, _, _ in sorted(os.walk(folder), reverse=True):
        if Path(parent) not in (folder, folder / "refs"):
            with suppress(OSError):
                os.rmdir(parent)
    if not (folder / "snapshots").exists() and not (folder / "blobs").exists():
        with suppress(OSError):
            shutil.rmtree(folder / "refs")
        with suppress(OSError):
            folder.rmdir()
