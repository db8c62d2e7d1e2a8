"""A cursor over the bytes of one file that cannot leave them.

Everything that reads a header goes through `take`: it compares the wanted length with the bytes left,
in Python ints and by subtraction, before anything is read or allocated. What the cursor is reading is
kept in `inside`, so that every error can name the place.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import FileError

__all__ = ["CUT_OFF", "Cursor", "Order"]

Order = Literal["<", ">"]
CUT_OFF = "the file is cut off or damaged: download it again"


class Cursor:
    """Reads numbers and bytes from `data` (uint8, read-only), starting at byte 0.

    Args:
        data: the whole file.
        path: named in errors.
        order: byte order of the numbers.
    """

    def __init__(self, data: NDArray[np.uint8], path: str, order: Order = "<") -> None:
        self.data = data
        self.view = data.data
        self.path = path
        self.order: Order = order
        self.pos = 0
        self.end = len(data)
        self.inside = "the header"
        self._u32 = struct.Struct(f"{order}I").unpack_from
        self._u64 = struct.Struct(f"{order}Q").unpack_from

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.end - self.pos

    def take(self, size: int) -> int:
        """Step over `size` bytes and return where they start."""
        if size > self.end - self.pos:
            self.fail(
                f"the file ends inside {self.inside}",
                expected=f"{size:,} bytes at offset {self.pos:,}",
                got=f"{self.left:,}",
                hint=CUT_OFF,
            )
        start = self.pos
        self.pos = start + size
        return start

    def u32(self) -> int:
        """The next four bytes as a number."""
        value: int = self._u32(self.view, self.take(4))[0]
        return value

    def u64(self) -> int:
        """The next eight bytes as a number."""
        value: int = self._u64(self.view, self.take(8))[0]
        return value

    def numbers(self, code: str, size: int) -> tuple[Any, ...]:
        """The next `size` bytes, unpacked as struct's format `code`."""
        return struct.unpack_from(self.order + code, self.view, self.take(size))

    def text(self, limit: int) -> bytes:
        """A string: u64 length, then the bytes; longer than `limit` is refused."""
        at = self.pos
        size = self.u64()
        if size > limit and size <= self.left:
            self.fail(
                f"{self.inside} is too long",
                expected=f"at most {limit:,} bytes at offset {at:,}",
                got=f"{size:,}",
            )
        start = self.take(size)
        return bytes(self.view[start : start + size])

    def fail(
        self,
        what: str,
        *,
        expected: object = None,
        got: object = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise a FileError that names the file."""
        raise FileError(what, where=self.path, expected=expected, got=got, hint=hint)
