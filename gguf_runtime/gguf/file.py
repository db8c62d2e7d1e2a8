"""A model as it lies on disk: all parts of it, metadata, tensors and their bytes.

    with open_file("phi.gguf") as file:
        file.metadata["general.architecture"], file.tensors["token_embd.weight"].shape
        file.tensor_bytes("token_embd.weight")      # (rows, bytes per row) uint8, a view of the file

Nothing is copied but small values. The file is mapped read-only; views keep it mapped after `close`.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import FileError, ModelError, escape, show
from gguf_runtime.gguf.part import Notice, Part, open_part, state_of
from gguf_runtime.gguf.shards import part_of, resolve, siblings
from gguf_runtime.gguf.strings import Compiled
from gguf_runtime.gguf.tensors import TensorInfo
from gguf_runtime.gguf.values import Metadata
from quant import types

if TYPE_CHECKING:
    from gguf_runtime.gguf.manifest import Manifest

__all__ = ["GGUFFile", "open_file"]

U8 = NDArray[np.uint8]
SAMPLE = 64  # bytes at both ends of every tensor that go into the fingerprint
HEADER_SAMPLE = 1 << 24  # and of a header


def open_file(
    path: str | os.PathLike[str], compiled: Compiled | None = None, foreign_order: bool = False
) -> GGUFFile:
    """Open a GGUF file, any part of a split one, or a folder that holds one model.

    Args:
        path: file or folder.
        compiled: kernels for reading arrays of strings.
        foreign_order: also open big-endian files, whose tensors cannot be read.

    Raises:
        FileError: the file is missing, damaged, incomplete or of another kind.
    """
    first = resolve(Path(path))
    part = open_part(first, 0, compiled, foreign_order)
    no, count = part_of(first, part.metadata)
    if count == 1:
        return GGUFFile([part])
    paths = siblings(first, no, count)
    parts = [open_part(p, i, compiled, foreign_order) for i, p in enumerate(paths)]
    for i, other in enumerate(parts):
        if part_of(other.path, other.metadata) != (i, count):
            raise FileError(
                "the metadata of this part contradict its name",
                where=other.path,
                expected=f"split.no {i:,} and split.count {count:,}",
                got=f"{show(other.metadata.get('split.no'))} and "
                f"{show(other.metadata.get('split.count'))}",
            )
    return GGUFFile(parts)


class GGUFFile:
    """An open model file. Closing it is optional; as a context manager it closes itself.

    path, paths     the file that stands for the model (part 1), and all parts
    version         of the GGUF format
    metadata        of part 1
    tensors         by name, over all parts, in the order of the files
    notices         what is odd without being wrong
    size_bytes      of all parts together
    """

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self.path: Path = parts[0].path
        self.paths: tuple[Path, ...] = tuple(p.path for p in parts)
        self.version: int = parts[0].version
        self.order: str = parts[0].order
        self.alignment: int = parts[0].alignment
        self.metadata: Metadata = parts[0].metadata
        self.tensors: Mapping[str, TensorInfo] = self._join()
        self.notices: tuple[Notice, ...] = tuple(n for p in parts for n in p.notices)
        self.size_bytes: int = sum(len(p.data) for p in parts)
        self._manifest: Manifest | None = None
        self._fingerprint: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({os.fspath(self.path)!r}, {len(self.tensors):,} tensors)"

    @property
    def architecture(self) -> str:
        """What `general.architecture` says; ModelError where it says nothing."""
        value = self.metadata.get("general.architecture")
        if not isinstance(value, str) or not value:
            raise ModelError(
                "key general.architecture is missing or no text",
                where=self.path,
                expected="the name of an architecture",
                got=None if value is None else show(value),
            )
        return value

    def manifest(self) -> Manifest:
        """The known keys, checked; ModelError that names every key that is wrong."""
        if self._manifest is None:
            from gguf_runtime.gguf.manifest import read_manifest

            self._manifest = read_manifest(self)
        return self._manifest

    def tensor(self, name: str) -> TensorInfo:
        """The table entry of a tensor; ModelError where there is none."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"tensor {show(name)} is missing", where=self.path)
        return info

    def qtype(self, name: str) -> types.Type:
        """The type of a tensor as kernels know it; ModelError where none can run it."""
        info = self.tensor(name)
        qtype = info.qtype
        if qtype is None:
            raise ModelError(
                f"tensor type {info.type_id} ({info.type_name}) in {escape(name)} is not supported",
                where=self.path,
                expected=f"one of {', '.join(sorted(types.TYPES))}",
                hint="get a file of this model with another quantization, such as Q4_K_M or Q8_0",
            )
        return qtype

    def tensor_bytes(self, name: str) -> U8:
        """(rows, bytes per row) uint8 of a tensor: a read-only view of the file; (0, 0) if empty."""
        info = self.tensor(name)
        part = self._open_parts()[info.shard]
        if part.order == ">":
            raise ModelError("tensors of a big-endian file cannot be read", where=part.path)
        if not info.n_elements:  # whatever its other dimensions claim
            return part.data[:0].reshape(0, 0)
        if not info.sized:
            self.qtype(name)
        data = part.data[info.offset : info.offset + info.size_bytes]
        return data.reshape(info.n_rows, info.row_bytes)

    def release(self, name: str, rows: range | None = None) -> None:
        """Tell the system that the pages of (some rows of) a tensor will not be needed soon."""
        self._advise(name, rows, "MADV_DONTNEED")

    def fetch(self, name: str, rows: range | None = None) -> None:
        """Tell the system that they will be needed soon, so that it reads them at one go."""
        self._advise(name, rows, "MADV_WILLNEED")

    def _advise(self, name: str, rows: range | None, advice: str) -> None:
        info = self.tensor(name)
        start, size = info.offset, info.size_bytes
        if rows is not None:
            start, size = start + rows.start * info.row_bytes, len(rows) * info.row_bytes
        before = start % mmap.PAGESIZE  # a page shared with a neighbour is read again if need be
        if size > 0 and hasattr(mmap, advice):
            part = self._open_parts()[info.shard]
            part.map.madvise(getattr(mmap, advice), start - before, size + before)

    def check_unchanged(self) -> None:
        """FileError when a file was written to since it was opened; costs a few microseconds.

        A file that was replaced by another, or deleted, is no matter: its pages stay. One that was
        written over has other bytes in them now, or none at its end, where a read ends the process.
        """
        for part in self._parts:
            try:
                now = state_of(os.stat(part.path))
            except OSError:
                continue
            if now != part.state and now[:2] == part.state[:2]:
                raise FileError(
                    "this file was written to while the model was in use",
                    where=part.path,
                    expected=f"{part.state[2]:,} bytes, unchanged",
                    got=f"{now[2]:,} bytes" if now[2] != part.state[2] else "other bytes",
                    hint="load the model again; a file in use is replaced with mv, not with cp",
                )

    def fingerprint(self) -> str:
        """64 hex digits that tell models apart without reading them whole.

        SHA-256 over the sizes, the headers (of a very long one both ends), and 64 bytes at both
        ends of every tensor.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for part in self._open_parts():
                digest.update(len(part.data).to_bytes(8, "little"))
                _add_ends(digest, part.data[: part.header_bytes], HEADER_SAMPLE)
            for info in self.tensors.values():
                data = self._open_parts()[info.shard].data[
                    info.offset : info.offset + info.size_bytes
                ]
                _add_ends(digest, data, SAMPLE)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def close(self) -> None:
        """Let go of the mapped files; they are unmapped with the last view of them."""
        self._parts = []

    def _open_parts(self) -> list[Part]:
        if not self._parts:
            raise FileError("the file has been closed", where=self.path)
        return self._parts

    def _join(self) -> dict[str, TensorInfo]:
        if len(self._parts) == 1:
            return self._parts[0].tensors
        tensors: dict[str, TensorInfo] = {}
        for part in self._parts:
            tensors |= part.tensors
        total = sum(len(p.tensors) for p in self._parts)
        if len(tensors) < total:
            names = Counter(name for p in self._parts for name in p.tensors)
            raise FileError(
                f"tensor {show(names.most_common(1)[0][0])} stands in two parts", where=self.path
            )
        said = self.metadata.get("split.tensors.count", total)
        if said != total:
            raise FileError(
                "the parts do not hold the tensors that split.tensors.count promises",
                where=self.path,
                expected=f"{show(said)} tensors in {len(self._parts):,} parts",
                got=f"{total:,}",
                hint="download all parts again, from one place",
            )
        return tensors


def _add_ends(digest: hashlib._Hash, data: U8, size: int) -> None:
    """All of `data` where it is short, else `size` bytes at both ends."""
    if len(data) <= 2 * size:
        digest.update(data.data)
    else:
        digest.update(data[:size].data)
        digest.update(data[-size:].data)
