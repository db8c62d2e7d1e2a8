"""Work folders of pulls: one per model, hidden beside the final place, of one pull at a time."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gguf_runtime.errors import MachineError
from gguf_runtime.hub.resolve import size

CHUNK_BYTES = 1 << 20
SPARE_BYTES = 64 << 20  # left free on the disk beyond what a pull needs
PREFIX = ".pull-"
ELSEWHERE = "export GGUF_RUNTIME_MODELS=/some/folder"

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, bytes done, bytes in all)."""


def stage_of(folder: Path, name: str) -> Path:
    """The work folder of a model; it need not exist."""
    return folder / f"{PREFIX}{name}"


def held_bytes(stage: Path) -> int:
    """What an earlier pull left, in bytes; 0 where there is nothing."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(stage):
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".bad"):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


@contextmanager
def staged(stage: Path, report: Progress, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """The work folder, there and locked; left in place, for the next try, when the body fails.

    The lock goes with the process that holds it, however that ends.
    """
    try:
        stage.mkdir(parents=True, exist_ok=True)
        lock = _locked(stage, report)
    except OSError as e:
        raise cannot_write(e, stage.parent, elsewhere) from e
    try:
        with lock:
            stage.mkdir(exist_ok=True)  # the pull that was waited for took it away
            yield
            shutil.rmtree(stage, ignore_errors=True)
            lock_file(stage).unlink(missing_ok=True)  # while it is held: see _locked
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise cannot_write(e, stage.parent, elsewhere) from e
        raise


def clean(stage: Path) -> None:
    """Take away what a pull left behind, unless one is at work there."""
    if not stage.exists() and not lock_file(stage).exists():
        return
    with suppress(OSError), lock_file(stage).open("w") as f:
        if _try_lock(f):
            shutil.rmtree(stage, ignore_errors=True)
            lock_file(stage).unlink(missing_ok=True)


def check_space(stage: Path, what: str, needed_bytes: int, elsewhere: str = ELSEWHERE) -> None:
    """MachineError where the disk has less than this and a reserve."""
    needed = needed_bytes + SPARE_BYTES
    free = shutil.disk_usage(stage).free
    if free < needed:
        raise MachineError(
            f"not enough free space for {what}",
            where=stage.parent,
            expected=f"{size(needed)} (the file, its download, and a reserve)",
            got=size(free),
            hint=f"free some, or name another folder: {elsewhere}",
        )


def digest(path: Path, report: Progress) -> str:
    """sha256 of a file, in hex."""
    found, total = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as f:
        while chunk := f.read(CHUNK_BYTES):
            found.update(chunk)
            report("checking", f.tell(), total)
    return found.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder last."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(stage: Path) -> Path:
    """The file whose lock says that a pull is at work."""
    return stage.with_name(stage.name + ".lock")


def cannot_write(e: OSError, folder: Path, elsewhere: str = ELSEWHERE) -> MachineError:
    """The error of a folder that takes nothing."""
    return MachineError(
        f"this folder cannot be written: {(e.strerror or str(e)).lower()}",
        where=folder,
        hint=f"name another: {elsewhere}",
    )


def _locked(stage: Path, report: Progress) -> IO[str]:
    """The open lock file, locked; closing it lets go."""
    path = lock_file(stage)
    while True:
        f = path.open("w")
        if not _try_lock(f):
            report("waiting for another pull", 0, 0)
            _wait_lock(f)
        # Whoever held it may have taken the file away: then a later pull locks another file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(f.fileno()), path.stat()):
                return f
        f.close()


def _try_lock(f: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows: an exclusive rename at the end is the only guard
        return True
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_lock(f: IO[str]) -> None:
    import fcntl

    fcntl.flock(f, fcntl.LOCK_EX)
