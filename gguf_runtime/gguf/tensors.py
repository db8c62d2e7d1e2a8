"""The tensor table of a GGUF file, and the proof that every tensor lies inside the file.

All sizes are Python ints, so nothing can wrap; bounds are tested by subtraction from what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from gguf_runtime.errors import ModelError, escape, show
from gguf_runtime.gguf.cursor import CUT_OFF, Cursor
from gguf_runtime.gguf.ggml_types import GGML_TYPES, type_name
from quant import types

__all__ = ["TensorInfo", "place_tensors", "read_tensors"]

TENSORS = 1 << 16  # experts one by one: 3 matrices, 256 experts, 61 layers are 46,848
NAME_BYTES = 256
DIMENSIONS = 4
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: where it is and what it holds.

    shape       as in the file: the length of a row first
    offset      of its first byte in its part
    size_bytes  of a type whose block size is not known: up to the next tensor
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    size_bytes: int
    shard: int = 0

    @property
    def qtype(self) -> types.Type | None:
        """The type as kernels know it, None where none can run it."""
        return types.by_id(self.type_id)

    @property
    def type_name(self) -> str:
        """The name of its type, also of one that cannot be run."""
        return type_name(self.type_id)

    @property
    def sized(self) -> bool:
        """Whether the block size of its type is known."""
        return self.type_id in GGML_TYPES

    @property
    def n_elements(self) -> int:
        """Weights in it; 0 for an empty placeholder."""
        return prod(self.shape)

    @property
    def n_rows(self) -> int:
        """Rows of `shape[0]` weights, over all further dimensions."""
        return prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; ModelError where the type's block size is not known."""
        row = GGML_TYPES.get(self.type_id)
        if row is None:
            raise ModelError(
                f"tensor type {self.type_id} ({self.type_name}) is not supported",
                where=f"tensor {escape(self.name)}",
            )
        return prod(self.shape[:1]) // row.values * row.size_bytes


def read_tensors(cursor: Cursor, count: int) -> list[TensorInfo]:
    """`count` rows of the table; offsets still count from the start of the data."""
    if count > TENSORS:
        cursor.fail("too many tensors", expected=f"at most {TENSORS:,}", got=f"{count:,}")
    return [_read_tensor(cursor, f"tensor {i + 1:,} of {count:,}") for i in range(count)]


def _read_tensor(cursor: Cursor, place: str) -> TensorInfo:
    cursor.inside = f"the name of {place}"
    name = cursor.text(NAME_BYTES)
    if not name:
        cursor.fail(f"{place} has no name")
    cursor.inside = f"the table entry of tensor {show(name)}"
    n_dims = cursor.u32()
    if n_dims > DIMENSIONS:
        cursor.fail(
            f"tensor {show(name)} has too many dimensions",
            expected=f"at most {DIMENSIONS}",
            got=f"{n_dims:,}",
        )
    *dims, type_id, offset = cursor.numbers(f"{n_dims}QIQ", 8 * n_dims + 12)
    shape, n_elements = tuple(dims), prod(dims)
    if max(shape, default=0) > LARGEST:
        cursor.fail(f"tensor {show(name)} has a dimension that no file can hold", got=_shape(shape))
    size = 0
    row = GGML_TYPES.get(type_id)
    if row and n_elements:
        k = shape[0] if shape else 1
        if k % row.values:
            cursor.fail(
                f"tensor {show(name)} has rows that are no whole number of {row.name} blocks",
                expected=f"a multiple of {row.values}",
                got=f"{k:,}",
            )
        size = n_elements // row.values * row.size_bytes
    return TensorInfo(name.decode("utf-8", "surrogateescape"), shape, type_id, offset, size)


def place_tensors(
    cursor: Cursor, tensors: list[TensorInfo], data_start: int, alignment: int, shard: int
) -> dict[str, TensorInfo]:
    """The tensors by name, offsets from the start of the file, each inside it and over no other.

    Empty tensors are kept and take no room. Bytes after the last tensor do not matter.
    """
    room = cursor.end - data_start
    by_name = {t.name: t for t in tensors}
    if len(by_name) < len(tensors):
        _refuse_namesakes(cursor, tensors)
    filled = sorted((t for t in tensors if t.n_elements), key=lambda t: t.offset)
    _check_bounds(cursor, filled, data_start, alignment)
    nexts = [*(t.offset for t in filled), room][1:]
    for i, (t, after) in enumerate(zip(filled, nexts, strict=True)):
        size = t.size_bytes if t.sized else after - t.offset
        if size > after - t.offset or not size:
            other = filled[min(i + 1, len(filled) - 1)]
            cursor.fail(
                f"tensors {show(t.name)} and {show(other.name)} overlap",
                expected=f"the second at offset {t.offset + size:,} of the data or later",
                got=f"{after:,}",
            )
        by_name[t.name] = replace(t, offset=data_start + t.offset, size_bytes=size, shard=shard)
    for t in tensors:
        if not t.n_elements:
            by_name[t.name] = replace(t, offset=data_start, shard=shard)
    return by_name


def _check_bounds(
    cursor: Cursor, filled: list[TensorInfo], data_start: int, alignment: int
) -> None:
    room = cursor.end - data_start
    for t in filled:
        if t.offset % alignment:
            cursor.fail(
                f"tensor {show(t.name)} does not start on the file's alignment",
                expected=f"a multiple of {alignment:,}",
                got=f"{t.offset:,}",
            )
        if t.offset > room or t.size_bytes > room - t.offset:
            needed = data_start + max(t.offset + t.size_bytes for t in filled)
            cursor.fail(
                f"tensor {escape(t.name)} ({t.type_name}, {_shape(t.shape)}) "
                "ends past the end of the file",
                expected=f"at least {needed:,} bytes",
                got=f"{cursor.end:,}",
                hint=CUT_OFF,
            )
    total = sum(t.size_bytes for t in filled)
    if total > max(room, 0):
        cursor.fail(
            "the tensors together are larger than the file",
            expected=f"at most {max(room, 0):,} bytes",
            got=f"{total:,}",
        )


def _refuse_namesakes(cursor: Cursor, tensors: list[TensorInfo]) -> None:
    seen = set()
    for t in tensors:
        if t.name in seen:
            cursor.fail(f"tensor {show(t.name)} stands twice in the table", expected="once")
        seen.add(t.name)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape) or "a single value"
