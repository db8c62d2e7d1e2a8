"""The cache of compiled kernels: one file per object, found by a key over everything it depends on.

File    magic, 16 bytes | sha256 of the rest, 32 | key, 32 | object (empty: it cannot be built)
Name    <symbol>.<isa>.<first 16 digits of the key>.o
Place   $GGUF_RUNTIME_CACHE, else the user's cache folder; in it kernels-<versions>/, 0700 and ours:
        these files are run, so a folder that somebody else could write to is not used at all.

A file is written under another name, flushed and renamed, so two processes may build the same one.
What does not match its digest or key is not there. Without a writable place objects stay in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable

MAGIC = b"gguf-runtime o1\n"
KEEP = 4  # objects of one kernel and ISA under older keys that stay: several checkouts may share
FORGET_S = 7 * 86400  # then a kernel that killed its compiler is tried again

Notice = Callable[[str, str], None]


def environment() -> str:
    """Versions and system that decide what machine code comes out; none is imported."""
    python = ".".join(map(str, sys.version_info[:3]))
    machine = (
        os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE")
    )
    parts = [f"{name}{version(name)}" for name in ("numba", "llvmlite")]
    return f"{sys.implementation.name}{python} {' '.join(parts)} {sys.platform} {machine}"


def version(package: str) -> str:
    """Version of an installed package, read from the name of the folder beside it."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(package)
    if spec is None or not spec.origin:
        return "0"
    site = os.path.dirname(os.path.dirname(spec.origin))
    found = []
    with contextlib.suppress(OSError):
        start, end = f"{package}-", ".dist-info"
        names = os.listdir(site)
        found = [
            n[len(start) : -len(end)] for n in names if n.startswith(start) and n.endswith(end)
        ]
    if len(found) == 1:
        return found[0]
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "0"


def default_base() -> str | None:
    """The folder for caches; None when the environment names no absolute one."""
    own = os.environ.get("GGUF_RUNTIME_CACHE")
    if own:
        return os.path.abspath(own)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    else:
        home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(home)
    return os.path.join(base, "gguf-runtime") if os.path.isabs(base) else None


class Store:
    """Objects by (name, key): on disk where that is safe, and in memory."""

    def __init__(self, base: str | None, notice: Notice) -> None:
        self._memory: dict[tuple[str, bytes], bytes] = {}
        self._notice = notice
        self._said = False
        tag = f"kernels-{sys.implementation.cache_tag}-numba{version('numba')}"
        self.folder = os.path.join(base, tag) if base else None

    def get(self, name: str, key: bytes) -> bytes | None:
        """The object, b"" for one that is known not to build, None when there is none."""
        found = self._memory.get((name, key))
        if found is None and self.folder is not None:
            found = self._read(self._path(name, key), key)
        return found

    def put(self, name: str, key: bytes, data: bytes) -> None:
        """Keep an object, on disk if possible; b"" marks one that does not build."""
        why: str | None = "there is no cache folder"
        if self.folder is not None:
            try:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                why = why_unsafe(self.folder)
                if why is None:
                    self._write(self._path(name, key), key + data)
                    self._prune(name)
            except OSError as error:
                why = f"{self.folder}: {error.strerror or error}"
        if why is not None:
            self._memory[name, key] = data
            self._say(why)

    def _path(self, name: str, key: bytes) -> str:
        return os.path.join(self.folder or "", f"{name}.{key.hex()[:16]}.o")

    def _read(self, path: str, key: bytes) -> bytes | None:
        try:
            if why_unsafe(os.path.dirname(path)) is not None:
                return None
            # O_NONBLOCK: a named pipe in the object's place would be waited for without end.
            extra = sum(getattr(os, f, 0) for f in ("O_NOFOLLOW", "O_BINARY", "O_NONBLOCK"))
            fd = os.open(path, os.O_RDONLY | extra)
            with open(fd, "rb") as file:
                facts = os.fstat(fd)
                data = file.read() if stat.S_ISREG(facts.st_mode) and _ours(facts) else b""
        except OSError:
            return None
        body = data[48:]
        if data[:16] != MAGIC or hashlib.sha256(body).digest() != data[16:48] or body[:32] != key:
            return None
        if len(body) == 32 and time.time() - facts.st_mtime > FORGET_S:
            return None
        return body[32:]

    def _write(self, path: str, body: bytes) -> None:
        scratch = f"{path}.{os.getpid()}.{time.monotonic_ns():x}.tmp"
        fd = os.open(
            scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            with open(fd, "wb") as file:
                file.write(MAGIC + hashlib.sha256(body).digest() + body)
                file.flush()
                os.fsync(fd)
            os.replace(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise

    def _prune(self, name: str) -> None:
        """Forget all but the newest objects of one kernel, and what a killed process left."""
        folder = self.folder or ""
        now, mine = time.time(), []
        for entry in os.scandir(folder):
            if not entry.name.startswith(f"{name}."):
                continue
            with contextlib.suppress(OSError):
                written = entry.stat(follow_symlinks=False).st_mtime
                if not entry.name.endswith(".tmp"):
                    mine.append((written, entry.path))
                elif now - written > 3600:
                    os.unlink(entry.path)
        for _, path in sorted(mine)[: -KEEP - 1]:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _say(self, why: str) -> None:
        if not self._said:
            self._said = True
            self._notice("kernel-cache", f"compiled kernels are kept in memory only: {why}")


def why_unsafe(folder: str) -> str | None:
    """Why nobody should trust what is in `folder`; None when it is ours alone.

    Raises:
        OSError: it is not there.
    """
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode):
        return f"{folder} is not a folder"
    if not _ours(facts):
        return f"{folder} belongs to somebody else"
    if os.name == "posix" and stat.S_IMODE(facts.st_mode) & 0o077:
        return f"{folder} is open to others: chmod 700 {folder}"
    return None


def _ours(facts: os.stat_result) -> bool:
    return os.name != "posix" or facts.st_uid == os.geteuid()
