"""A file of packs: how it is written, checked and mapped.

File    magic, 16 bytes | sha256 of the header, 32 | its length, u64 | header (JSON) | data, page aligned
Header  fingerprint, size and time of the model file · table: tensor, type, rows, k, first row, offset,
        size of every pack · sha256 of the data · stamp, the time that the file is given when it is whole
Name    <16 digits of the model's fingerprint>-<16 of the table's digest>.packs

The header is checked at every start. The data are hashed when the file's own time is not its stamp,
which any change brings about: whole weights need not be read before the first token. A file is written
under another name, flushed and renamed; what does not fit or is damaged is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gguf_runtime.engine.packs import WINDOW_BYTES, Progress, cut, packed_bytes, strip_bytes
from gguf_runtime.graph.weights import Weight
from quant.memory import allocate
from quant.packing import ALIGNED, Pack, fill
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

MAGIC = b"gguf-runtime p1\n"
HEAD = len(MAGIC) + 32 + 8
SUFFIX = ".packs"
STALE_S = 3600  # a scratch file so old was left by a process that was killed
SPARE_BYTES = 64 << 20  # of the disk, left to others

Table = list[list[Any]]


def name_of(file: GGUFFile, weights: Sequence[Weight]) -> str:
    """The name that the file of these packs has."""
    digest = hashlib.sha256(_json(_table(weights))).hexdigest()
    return f"{file.fingerprint()[:16]}-{digest[:16]}{SUFFIX}"


def open_packs(
    path: Path,
    file: GGUFFile,
    weights: Sequence[Weight],
    progress: Progress | None = None,
) -> tuple[dict[Weight, Pack] | None, str]:
    """The packs of a file, or why it is not one of this model."""
    table = _table(weights)
    try:
        header, start = read_header(path)
        if header is None:
            return None, "its header is damaged"
        if header.get("fingerprint") != file.fingerprint() or header.get("table") != table:
            return None, "it belongs to another model"
        if header.get("sources") != _sources(file):
            return None, "the model file has changed since"
        size = table[-1][-2] + table[-1][-1] if table else 0
        with path.open("rb") as f:
            facts = os.fstat(f.fileno())
            if facts.st_size != start + size:
                return None, f"it has {facts.st_size:,} bytes, not {start + size:,}"
            area = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(area, np.uint8)[start:]
        if facts.st_mtime_ns != header["stamp"] * 10**9:
            if _hash(data, progress) != header["sha256"]:
                return None, "its data are damaged"
            with contextlib.suppress(OSError):  # a place that cannot be written to
                _stamp(path, header["stamp"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        return None, f"it cannot be read ({e})"
    packs = {}
    for w, row in zip(weights, table, strict=True):
        part = data[row[-2] : row[-2] + packed_bytes(w)]
        packs[w] = Pack(w.qtype, w.rows, w.k, -(-w.rows // 16), strip_bytes(w), part)
    return packs, ""


def read_header(path: Path) -> tuple[dict[str, Any] | None, int]:
    """The header of a file and where its data begin; None for the header when it is damaged."""
    with path.open("rb") as f:
        head = f.read(HEAD)
        if len(head) < HEAD or not head.startswith(MAGIC):
            return None, 0
        (length,) = struct.unpack_from("<Q", head, HEAD - 8)
        if length > os.fstat(f.fileno()).st_size:
            return None, 0
        text = f.read(length)
    if hashlib.sha256(text).digest() != head[len(MAGIC) : len(MAGIC) + 32]:
        return None, 0
    return json.loads(text), _aligned(HEAD + length)


def _hash(data: Any, progress: Progress | None) -> str:
    total = hashlib.sha256()
    for at in range(0, len(data), WINDOW_BYTES):
        total.update(data[at : at + WINDOW_BYTES].data)
        if progress is not None:
            progress("checking packs", min(len(data), at + WINDOW_BYTES), len(data))
    return total.hexdigest()


def make_packs(
    path: Path,
    file: GGUFFile,
    weights: Sequence[Weight],
    pool: Pool,
    progress: Progress | None = None,
) -> None:
    """Write the packs window by window; memory never holds more than two windows.

    Raises:
        OSError: they cannot be written there.
    """
    table = _table(weights)
    _sweep(path.parent)
    size = table[-1][-2] + table[-1][-1] if table else 0
    free = shutil.disk_usage(path.parent).free
    if free < size + SPARE_BYTES:
        raise OSError(0, f"{size / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free")
    header: dict[str, Any] = {
        "model": file.path.name,
        "fingerprint": file.fingerprint(),
        "sources": _sources(file),
        "table": table,
        "sha256": "0" * 64,
        "stamp": max(0, int(time.time()) - 60) // 2 * 2,  # a time that every file system can keep
    }
    scratch = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns():x}.tmp")
    fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(fd, "wb") as out:
            out.seek(_aligned(HEAD + len(_json(header))))
            header["sha256"] = _write(out, file, weights, pool, progress)
            text = _json(header)
            out.seek(0)
            out.write(MAGIC + hashlib.sha256(text).digest() + struct.pack("<Q", len(text)) + text)
            out.flush()
            os.fsync(out.fileno())
        _stamp(scratch, header["stamp"])
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def _write(
    out: BinaryIO,
    file: GGUFFile,
    weights: Sequence[Weight],
    pool: Pool,
    progress: Progress | None,
) -> str:
    """Pack and write everything from here on; the digest of what was written."""
    total = hashlib.sha256()
    windows = cut(weights)
    done, size = 0, sum(piece.size_bytes for window in windows for piece in window)
    room = max((sum(len(p.strips) * strip_bytes(p.weight) for p in w) for w in windows), default=0)
    buffer = allocate(room, huge=True)
    for window in windows:
        parts, at = [], 0
        for w, strips, rows in window:
            n = len(strips) * strip_bytes(w)
            blocks = file.tensor_bytes(w.tensor)[rows.start : rows.stop]
            parts.append((buffer[at : at + n], blocks, w.qtype))
            at += n
        fill(parts, pool)
        for piece, (data, _, _) in zip(window, parts, strict=True):
            w = piece.weight
            whole = piece.strips.stop * strip_bytes(w) == packed_bytes(w)
            padding = bytes(-packed_bytes(w) % ALIGNED) if whole else b""
            for part in (data.data, padding):
                total.update(part)
                out.write(part)
            file.release(w.tensor, piece.rows)
            done += piece.size_bytes
        if progress is not None and window:
            progress("writing packs", done, size)
    return total.hexdigest()


def _table(weights: Sequence[Weight]) -> Table:
    """A row per weight: what it is, then where its pack begins and how many bytes it has."""
    rows: Table = []
    at = 0
    for w in weights:
        n = _aligned(packed_bytes(w))
        rows.append([w.tensor, w.qtype.name, w.rows, w.k, w.first_row, at, n])
        at += n
    return rows


def _sources(file: GGUFFile) -> list[list[int]]:
    """Size and time, in whole seconds, of every part of the model file."""
    return [[s.st_size, int(s.st_mtime)] for s in (os.stat(p) for p in file.paths)]


def _sweep(place: Path) -> None:
    """Remove what killed processes left."""
    for path in place.glob(f"*{SUFFIX}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _stamp(path: Path, seconds: int) -> None:
    os.utime(path, ns=(seconds * 10**9, seconds * 10**9))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _aligned(n: int) -> int:
    return -(-n // ALIGNED) * ALIGNED
