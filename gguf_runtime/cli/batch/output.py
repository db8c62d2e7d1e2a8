"""The output of `batch`: a file that grows by whole lines and can be taken up again, or a stream.

A line reaches the system in one write as soon as it is finished, so a killed process loses none; the
disk is asked to keep what it was given (fsync) once a second and at the end, for the case that the
machine itself stops. What a kill may leave half-written is the last line: it is cut off.
"""

from __future__ import annotations

import array
import fcntl
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gguf_runtime.cli.terminal import OutputError, Terminal
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import show

SYNC_S = 1.0
STDOUT = "-"
MANIFEST = ".run.json"
LINES_AT_ONCE = 1 << 20  # bytes that are copied at a time


class Stream:
    """Answers to standard output, or to what is no regular file; nothing is resumed."""

    resumes = False

    def __init__(self, terminal: Terminal, name: str = "stdout", fd: int | None = None) -> None:
        self.name = name
        self._terminal, self._fd = terminal, fd

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def append(self, line: bytes) -> None:
        """Write a line."""
        if self._fd is None:
            self._terminal.write(line.decode())
            return
        try:
            _write(self._fd, line)
        except OSError as e:
            raise OutputError(e, self.name) from e

    def close(self) -> None:
        """Nothing is left to do for standard output."""
        if self._fd is not None:
            os.close(self._fd)


class Growing:
    """A regular file: locked, appended to, cut back where a write was not whole."""

    resumes = True

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._fd, self.created = _locked(path)
        self._end = os.fstat(self._fd).st_size
        self._synced = time.monotonic()

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name_of_manifest(self) -> str:
        """Of the file that says what made this one."""
        return f"{self.path.name}{MANIFEST}"

    @property
    def empty(self) -> bool:
        """No line stands in it."""
        return self._end == 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines that are whole; what follows the last of them is cut off."""
        for _, facts, _ in self._parsed():
            yield facts

    def count(self) -> int:
        """How many whole lines stand in the file, whatever a signal kept from being counted."""
        with open(self.path, "rb") as f:
            return sum(block.count(b"\n") for block in iter(lambda: f.read(LINES_AT_ONCE), b""))

    def append(self, line: bytes) -> None:
        """Write a line: all of it, or nothing and OutputError."""
        try:
            _write(self._fd, line)
        except OSError as e:
            os.ftruncate(self._fd, self._end)
            raise OutputError(e, self.name) from e
        self._end += len(line)
        if time.monotonic() - self._synced >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Ask the disk to keep all lines."""
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise OutputError(e, self.name) from e
        self._synced = time.monotonic()

    def clear(self) -> None:
        """Forget all lines."""
        os.ftruncate(self._fd, 0)
        self._end = 0

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Only some of the lines, at once and for good."""
        self._replace((at, size) for at, facts, size in self._parsed() if wanted(facts))

    def sort(self) -> None:
        """All lines in the order of the input; nothing is done where they are."""
        numbers, starts, sizes = array.array("q"), array.array("q"), array.array("q")
        for at, facts, size in self._parsed():
            numbers.append(facts["line"])
            starts.append(at)
            sizes.append(size)
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        if any(a > b for a, b in itertools.pairwise(order)):
            self._replace((starts[k], sizes[k]) for k in order)

    def close(self) -> None:
        """Leave whole lines on the disk; a file that was made here and got none goes."""
        size = os.fstat(self._fd).st_size
        if size > self._end:  # a signal came between a write and its count
            whole = os.pread(self._fd, 1, size - 1) == b"\n"
            self._end = size if whole else self._end
            os.ftruncate(self._fd, self._end)
        if self.created and not self._end:
            self.path.unlink(missing_ok=True)
            self.path.with_name(self.name_of_manifest).unlink(missing_ok=True)
        else:
            self.sync()
        os.close(self._fd)

    def _parsed(self) -> Iterator[tuple[int, dict[str, Any], int]]:
        """(start, facts, size) of every line; a last one that is not whole is cut off."""
        at = number = 0
        with open(self.path, "rb") as f:
            for data in f:
                number += 1
                facts = _facts(data)
                if facts is None:
                    if at + len(data) < self._end:
                        raise UsageError(
                            f"{self.path}: line {number:,} is none that batch has written",
                            "take another -o, or start anew with --overwrite",
                        )
                    os.ftruncate(self._fd, at)
                    self._end = at
                    return
                yield at, facts, len(data)
                at += len(data)

    def _replace(self, parts: Iterator[tuple[int, int]]) -> None:
        """A new file of parts of this one takes its place; a kill leaves one or the other."""
        new = self.path.with_name(self.path.name + ".tmp")
        fd = -1
        try:
            fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, stat.S_IMODE(os.fstat(self._fd).st_mode))
            for start, size in parts:
                for at in range(start, start + size, LINES_AT_ONCE):
                    _write(fd, os.pread(self._fd, min(LINES_AT_ONCE, start + size - at), at))
            os.fsync(fd)
            os.rename(new, self.path)
        except BaseException as e:
            new.unlink(missing_ok=True)
            if fd >= 0:
                os.close(fd)
            if isinstance(e, OSError):
                raise OutputError(e, self.name) from e
            raise
        os.close(self._fd)
        self._fd, self._end = fd, os.fstat(fd).st_size
        sync_folder(self.path.parent)


Output = Stream | Growing


def open_output(name: str, source: str, terminal: Terminal) -> Output:
    """Open OUT before any work is done, so that a wrong path is known now.

    Raises:
        UsageError: OUT is IN, or another batch writes to it. OutputError: it cannot be written.
    """
    if name == STDOUT:
        return Stream(terminal)
    path = Path(name)
    if source != STDOUT and path.exists() and _same(path, Path(source)):
        raise UsageError(f"{show(name)} is the input", "give another file with -o")
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            return Stream(terminal, name, os.open(path, os.O_WRONLY))
        return Growing(path)
    except FileNotFoundError as e:
        raise OutputError(e, f"{name} (make the folder: mkdir -p {path.parent})") from e
    except OSError as e:
        raise OutputError(e, name) from e


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder last."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some file systems cannot; the rename stands all the same
    finally:
        os.close(fd)


def _locked(path: Path) -> tuple[int, bool]:
    """An exclusive descriptor of what has this name now, and whether it was made for that."""
    while True:
        created = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise UsageError(
                f"{path}: another batch writes to it", "wait for its end, or take another -o"
            ) from None
        except OSError:
            pass  # a file system without locks
        try:
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd, created
        except FileNotFoundError:
            pass
        os.close(fd)  # it was replaced between the two


def _write(fd: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.write(fd, data[at:])


def _facts(data: bytes) -> dict[str, Any] | None:
    """A line as it was written, None where it is not whole."""
    if not data.endswith(b"\n"):
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("line"), int):
        return None
    return found
