"""Arrays of strings, found once and read on demand.

A string is a u64 length and its bytes, so the places of 262,144 of them can only be found one after
the other. `scan_strings` does that and nothing else; the bytes stay in the mapped file until asked for.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.gguf.lookup import OFTEN, Find, Lookup

__all__ = ["Compiled", "Scanner", "StringArray", "scan_strings"]

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

# (data, offset, out) -> n: walks len(out) - 1 strings from `offset`, writes where each starts (and
# where the last one ends) into `out`, and returns how many lie wholly inside `data`; writes no more
# than it found. A compiled kernel with this signature can take the place of `python_scan`.
Scanner = Callable[[U8, int, I64], int]
# (data, offsets, include, last) -> find: which number a text has among the strings that `include`
# says (None: all), of equal ones the last or the first; None where no table could be made.
Tables = Callable[[U8, I64, "U8 | None", bool], "Find | None"]


class Compiled(NamedTuple):
    """Kernels that can take the place of what is done here string by string."""

    scan: Scanner
    tables: Tables


def scan_strings(data: U8, offset: int, count: int, scan: Scanner | None = None) -> I64:
    """Where `count` strings from `offset` start, and the end of the last: (n + 1,) int64, n <= count.

    n < count says that string n runs past the end of `data`. The caller has checked that `count`
    is no more than what the file could hold.
    """
    out = np.empty(count + 1, np.int64)
    found = (scan or python_scan)(data, offset, out)
    return out[: found + 1]


def python_scan(data: U8, offset: int, out: I64, order: str = "<") -> int:
    """The scanner without compiled code: about 0.15 µs per string; `order` is that of the bytes."""
    count = len(out) - 1
    view, end = data.data, len(data)
    length = struct.Struct(f"{order}Q").unpack_from
    starts = array("q", bytes(out.nbytes))  # ten times faster to fill than a numpy array
    pos, found = offset, 0
    try:
        for found in range(count):
            starts[found] = pos
            pos += 8 + length(view, pos)[0]
            if pos > end:
                break
        else:
            starts[count], found = pos, count
    except struct.error:  # the length itself is cut off
        pass
    out[: found + 1] = np.frombuffer(starts, np.int64)[: found + 1]
    return found


class StringArray(Sequence[bytes]):
    """An array of strings of a file: `len`, `[i]` and slices give bytes, nothing is copied before."""

    __slots__ = ("_asked", "_data", "_list", "_tables", "offsets")

    def __init__(self, data: U8, offsets: I64, tables: Tables | None = None) -> None:
        """`offsets` (n + 1,) int64: where each string's length field starts, and the end."""
        self._data = data.data
        self.offsets = offsets
        self._tables = tables
        self._list: list[bytes] | None = None
        self._asked = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> bytes: ...
    @overload
    def __getitem__(self, i: slice) -> list[bytes]: ...
    def __getitem__(self, i: int | slice) -> bytes | list[bytes]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if self._list is not None:
            return self._list[i]
        self._asked += 1
        if self._asked > OFTEN:  # a list of all of them is faster from now on
            self._list = self.tolist()
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"string {i} of {len(self)}")
        return bytes(self._data[int(self.offsets[i]) + 8 : int(self.offsets[i + 1])])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringArray):
            return self.tolist() == other.tolist()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray({len(self):,} strings)"

    def numbers(self, include: U8 | None = None, last: bool = True) -> Lookup:
        """The number of each string.

        Args:
            include: (n,) 0 or 1: strings that count; None for all of them.
            last: which one of equal strings counts.
        """

        def make() -> dict[bytes, int]:
            n, strings = len(self), self.tolist()
            order: Sequence[int] = range(n) if include is None else np.flatnonzero(include).tolist()
            if not last:
                order = order[::-1]
            return {strings[i]: i for i in order}

        if self._tables is None:
            return Lookup(make)
        return Lookup(make, self._tables(self.data, self.offsets, include, last))

    @property
    def data(self) -> U8:
        """The bytes that `offsets` points into, for compiled readers."""
        return np.frombuffer(self._data, np.uint8)

    def lengths(self) -> I64:
        """Bytes of each string, (n,) int64."""
        lengths: I64 = np.diff(self.offsets) - 8
        return lengths

    def tolist(self) -> list[bytes]:
        """All strings; one copy of the whole span, then slices of it."""
        if not len(self):
            return []
        first = int(self.offsets[0])
        span = bytes(self._data[first : int(self.offsets[-1])])
        starts = (self.offsets - first).tolist()
        return [span[a + 8 : b] for a, b in pairwise(starts)]
