"""One GGUF file: mapped read-only, its header parsed, its tensors placed."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import FileError, MachineError, show
from gguf_runtime.gguf.cursor import Cursor, Order
from gguf_runtime.gguf.foreign import HEAD, identify, unfinished
from gguf_runtime.gguf.strings import Compiled
from gguf_runtime.gguf.tensors import TensorInfo, place_tensors, read_tensors
from gguf_runtime.gguf.values import Metadata, read_metadata

__all__ = ["Notice", "Part", "open_part"]

MAGIC = b"GGUF"
SMALLEST = 24  # magic, version, two counts
VERSIONS = (2, 3)
ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about a file that is worth knowing and no error."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Part:
    """A mapped file and what its header says; `data` is (size,) uint8, read-only."""

    path: Path
    state: tuple[int, ...]  # see `state_of`
    map: mmap.mmap
    data: NDArray[np.uint8]
    order: Order
    version: int
    alignment: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]
    header_bytes: int
    data_start: int
    notices: tuple[Notice, ...]


def open_part(
    path: Path, shard: int = 0, compiled: Compiled | None = None, foreign_order: bool = False
) -> Part:
    """Map and parse one file; FileError for whatever is wrong with it."""
    mapped, state = _map(path)
    data = np.frombuffer(mapped, np.uint8)
    version, order = _version(path, data)
    if order == ">" and not foreign_order:
        raise FileError(
            f"big-endian GGUF, version {version}",
            where=path,
            expected="a little-endian file",
            hint="get the little-endian file of this model, or convert it with gguf-convert-endian",
        )
    cursor = Cursor(data, os.fspath(path), order)
    cursor.take(8)
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    metadata, twice = read_metadata(cursor, n_keys, compiled)
    alignment = _alignment(cursor, metadata)
    tensors = read_tensors(cursor, n_tensors)
    header_bytes = cursor.pos
    data_start = header_bytes + -header_bytes % alignment
    placed = place_tensors(cursor, tensors, data_start, alignment, shard)
    notices = [Notice("duplicate-key", f"metadata key {show(key)} stands twice") for key in twice]
    end = max((t.offset + t.size_bytes for t in placed.values()), default=data_start)
    if len(data) - end > max(alignment, ALIGNMENT):
        notices.append(
            Notice("trailing-bytes", f"{len(data) - end:,} bytes after the last tensor are ignored")
        )
    return Part(
        path=path,
        state=state,
        map=mapped,
        data=data,
        order=order,
        version=version,
        alignment=alignment,
        metadata=metadata,
        tensors=placed,
        header_bytes=header_bytes,
        data_start=data_start,
        notices=tuple(notices),
    )


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells whether a file is another one (the first two) or was written to (the rest)."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _map(path: Path) -> tuple[mmap.mmap, tuple[int, ...]]:
    """The file's pages, and its state. Nothing that is no regular file is waited for: opening cannot block."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        _check_kind(path, os.stat(path).st_mode)  # opening a device may already do something
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise FileError("there is no such file", where=path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot be opened: {reason.lower()}", where=path) from None
    try:
        status = os.fstat(fd)
        _check_kind(path, status.st_mode)  # it may be another one by now
        _check_finished(path)
        head = os.pread(fd, HEAD, 0) if hasattr(os, "pread") else os.read(fd, HEAD)
        if not head.startswith(MAGIC):
            kind, hint = identify(head, status.st_size)
            raise FileError(f"is {kind}", where=path, expected="a GGUF file", hint=hint)
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ), state_of(status)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MachineError(
                "there is no address space left to map this file",
                where=path,
                hint="allow more: ulimit -v unlimited",
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot be read: {reason.lower()}", where=path) from None
    finally:
        os.close(fd)


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a block device"),
    )
    raise FileError(
        "is no regular file",
        where=path,
        expected="a GGUF file",
        got=next((name for test, name in kinds if test(mode)), "something else"),
        hint="a model cannot come through a pipe or a device: save it to a file first",
    )


def _check_finished(path: Path) -> None:
    """Refuse what its name, or aria2's file beside it, says is not all there.

    Some downloaders make the file in its full size first, so its content would not tell.
    """
    mark = path.with_name(path.name + ".aria2")
    if unfinished(path.name):
        hint = "finish the download; if the file is whole, give it its name without that ending"
    elif mark.exists():
        hint = f"finish the download: aria2c -c; if the file is whole: rm '{mark}'"
    else:
        return
    raise FileError("is an unfinished download", where=path, expected="a GGUF file", hint=hint)


def _version(path: Path, data: NDArray[np.uint8]) -> tuple[int, Order]:
    if len(data) < SMALLEST:
        raise FileError(
            "the file ends inside its first header",
            where=path,
            expected=f"at least {SMALLEST} bytes",
            got=f"{len(data)}",
            hint="download it again",
        )
    word = bytes(data[4:8])
    version, order = int.from_bytes(word, "little"), "<"
    swapped = int.from_bytes(word, "big")
    if version & 0xFFFF == 0 and swapped in (1, *VERSIONS):
        version, order = swapped, ">"
    if version not in VERSIONS:
        if version == 1:
            what, hint = "GGUF version 1 is not supported", "convert the original model again"
        elif version > max(VERSIONS) and version < 1 << 16:
            what, hint = (
                f"GGUF version {version:,} is newer than this reader",
                "update gguf-runtime",
            )
        else:
            what, hint = f"GGUF version {version:,} does not exist", "the file is damaged"
        raise FileError(what, where=path, expected="version 2 or 3", got=f"{version:,}", hint=hint)
    return version, ">" if order == ">" else "<"


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
        cursor.fail(
            "key general.alignment is no alignment", expected="a power of two", got=show(value)
        )
    return value
