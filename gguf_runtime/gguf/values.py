"""The metadata of a GGUF file: 13 kinds of values, read in bulk, kept lazy where they are large.

Numbers become int, float or bool, text becomes str (bytes where it is not UTF-8), arrays of numbers
read-only numpy arrays, arrays of strings a `StringArray`, arrays of arrays a tuple. Text that is
very large stays in the file as a memoryview. Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import show
from gguf_runtime.gguf.cursor import Cursor
from gguf_runtime.gguf.strings import Compiled, StringArray, python_scan, scan_strings

__all__ = ["Metadata", "Value", "read_metadata"]

Value: TypeAlias = (
    bool | int | float | str | bytes | memoryview | NDArray[Any] | StringArray | tuple[Any, ...]
)

BOOL, STRING, ARRAY = 7, 8, 9
NAMES = {BOOL: "bool", STRING: "string", ARRAY: "array"}
# kind: name, struct code, numpy code without byte order, bytes
NUMBERS: dict[int, tuple[str, str, str, int]] = {
    0: ("uint8", "B", "u1", 1),
    1: ("int8", "b", "i1", 1),
    2: ("uint16", "H", "u2", 2),
    3: ("int16", "h", "i2", 2),
    4: ("uint32", "I", "u4", 4),
    5: ("int32", "i", "i4", 4),
    6: ("float32", "f", "f4", 4),
    10: ("uint64", "Q", "u8", 8),
    11: ("int64", "q", "i8", 8),
    12: ("float64", "d", "f8", 8),
}
NAMES |= {kind: row[0] for kind, row in NUMBERS.items()}

# Limits of what one file may ask for. Real files stay ten times below; what a hostile one can make us
# allocate stays below 200 MB, and the time below two seconds.
KEYS = 1 << 16
KEY_BYTES = 65_535  # of one key, as the format says
ELEMENTS = 1 << 22  # of all arrays together
NESTED = 64  # an array inside an array counts as so many elements
DEPTH = 8  # arrays in arrays in arrays
TEXT_BYTES = 1 << 20  # longer text stays in the file
ALL_TEXT_BYTES = 1 << 24  # once a file's text is longer than this, all further text does


class Metadata(Mapping[str, Value]):
    """Keys and values in the order of the file, and the kind of each as the file names it."""

    __slots__ = ("_kinds", "_values")

    def __init__(self, values: dict[str, Value], kinds: dict[str, str]) -> None:
        self._values = values
        self._kinds = kinds

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def kind(self, key: str) -> str:
        """How the file stores a key's value: "uint32", "string", "array[float32]" …."""
        return self._kinds[key]


@dataclass(slots=True)
class _Reader:
    """What reading one file's metadata uses up."""

    cursor: Cursor
    compiled: Compiled | None
    elements: int = ELEMENTS
    text_bytes: int = ALL_TEXT_BYTES

    def value(self, kind: int) -> Value:
        if kind not in NAMES:
            self.unknown(kind)
        if kind in NUMBERS:
            _, code, _, size = NUMBERS[kind]
            number: int | float = self.cursor.numbers(code, size)[0]
            return number
        if kind == BOOL:
            at = self.cursor.take(1)
            byte = self.cursor.view[at]
            if byte > 1:
                self.bad_bool(byte, at)
            return bool(byte)
        if kind == STRING:
            return self.text()
        return self.array(1)[0]

    def text(self) -> Value:
        size = self.cursor.u64()
        start = self.cursor.take(size)
        view = self.cursor.view[start : start + size]
        if size > min(TEXT_BYTES, self.text_bytes):
            return view
        self.text_bytes -= size
        raw = bytes(view)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def array(self, depth: int) -> tuple[Value, str]:
        """The values of an array and the name of its element kind."""
        cursor = self.cursor
        if depth > DEPTH:
            cursor.fail(
                f"{cursor.inside} nests arrays too deep", expected=f"at most {DEPTH} levels"
            )
        kind, count = cursor.u32(), cursor.u64()
        if kind not in NAMES:
            self.unknown(kind)
        smallest = 12 if kind == ARRAY else 8 if kind == STRING else self.size(kind)
        if count > cursor.left // smallest:
            cursor.fail(
                f"{cursor.inside} has more elements than the file can hold",
                expected=f"at most {cursor.left // smallest:,} of kind {NAMES[kind]}",
                got=f"{count:,}",
                hint="the file is damaged or was made to mislead: get it again from its source",
            )
        self.elements -= count * (NESTED if kind == ARRAY else 1)
        if self.elements < 0:
            cursor.fail(
                f"{cursor.inside} makes the arrays of this header longer than any model needs",
                expected=f"at most {ELEMENTS:,} elements together",
            )
        if kind == ARRAY:
            inner = [self.array(depth + 1)[0] for _ in range(count)]
            return tuple(inner), NAMES[kind]
        if kind == STRING:
            return self.strings(count), NAMES[kind]
        return self.numbers(kind, count), NAMES[kind]

    def strings(self, count: int) -> StringArray:
        cursor = self.cursor
        compiled = self.compiled if cursor.order == "<" else None
        scan = compiled.scan if compiled else partial(python_scan, order=cursor.order)
        offsets = scan_strings(cursor.data, cursor.pos, count, scan)
        if len(offsets) <= count:
            cursor.pos = int(offsets[-1])
            cursor.inside = f"string {len(offsets) - 1:,} of {count:,} in {cursor.inside}"
            cursor.take(cursor.u64())
        cursor.pos = int(offsets[-1])
        return StringArray(cursor.data, offsets, compiled.tables if compiled else None)

    def numbers(self, kind: int, count: int) -> NDArray[Any]:
        cursor = self.cursor
        start = cursor.take(count * self.size(kind))
        raw = cursor.data[start : cursor.pos]
        if kind == BOOL:
            if count and raw.max() > 1:
                at = int(np.argmax(raw > 1))
                self.bad_bool(int(raw[at]), start + at)
            return raw.view(np.bool_)
        dtype = np.dtype(cursor.order + NUMBERS[kind][2])
        # A copy in native order, since a kernel must not meet unaligned numbers.
        numbers = raw.copy().view(dtype).astype(dtype.newbyteorder("="), copy=False)
        numbers.flags.writeable = False
        return numbers

    def size(self, kind: int) -> int:
        return 1 if kind == BOOL else NUMBERS[kind][3]

    def bad_bool(self, byte: int, at: int) -> NoReturn:
        self.cursor.fail(
            f"{self.cursor.inside} is no truth value",
            expected=f"0 or 1 at offset {at:,}",
            got=byte,
        )

    def unknown(self, kind: int) -> NoReturn:
        self.cursor.fail(
            f"{self.cursor.inside} is of unknown kind {kind:,} at offset {self.cursor.pos:,}",
            expected="a kind from 0 to 12",
            hint="the file is damaged, or newer than this reader",
        )


def read_metadata(
    cursor: Cursor, count: int, compiled: Compiled | None = None
) -> tuple[Metadata, list[str]]:
    """`count` pairs from the cursor on; and the keys that stood there twice with the same value."""
    if count > KEYS:
        cursor.fail("too many metadata keys", expected=f"at most {KEYS:,}", got=f"{count:,}")
    reader = _Reader(cursor, compiled)
    values: dict[str, Value] = {}
    kinds: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    twice: list[str] = []
    name_bytes = ALL_TEXT_BYTES
    for i in range(count):
        cursor.inside = f"metadata key {i + 1:,} of {count:,}"
        at = cursor.pos
        raw = cursor.text(KEY_BYTES)
        if not raw:
            cursor.fail(f"empty metadata key at offset {at:,}", expected="a name", got="0 bytes")
        name_bytes -= len(raw)
        if name_bytes < 0:
            cursor.fail("the names of all keys are too long", expected=f"{ALL_TEXT_BYTES:,} bytes")
        key = raw.decode("utf-8", "surrogateescape")
        cursor.inside = f"the value of {show(raw)}"
        start = cursor.pos
        kind = cursor.u32()
        if kind == ARRAY:
            value, of = reader.array(1)
            name = f"array[{of}]"
        else:
            value, name = reader.value(kind), NAMES[kind]
        span = (start, cursor.pos)
        if key not in values:
            values[key], kinds[key], spans[key] = value, name, span
        elif _same(cursor, spans[key], span):
            twice.append(key)
        else:
            cursor.fail(
                f"metadata key {show(raw)} stands twice with different values",
                expected="one value",
                got=f"{show(values[key], 60)} and {show(value, 60)}",
            )
    return Metadata(values, kinds), twice


def _same(cursor: Cursor, a: tuple[int, int], b: tuple[int, int]) -> bool:
    return np.array_equal(cursor.data[slice(*a)], cursor.data[slice(*b)])
