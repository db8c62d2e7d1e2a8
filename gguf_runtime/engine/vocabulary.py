"""Reading a vocabulary with compiled kernels: what `gguf.strings` says of each string at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.gguf.lookup import Find
from gguf_runtime.gguf.strings import Compiled
from gguf_runtime.kernels import strings as native
from quant import jit
from quant.calls import address
from quant.errors import QuantError

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

SPECS = native.SPECS
_MIN_SLOTS = 64

# A short call: the interpreter stays locked, and bytes are passed by where they stand.
_Short = Callable[[int, "bytes | int", int], None]


def compiled() -> Compiled | None:
    """The kernels, where the cache has them: nothing waits for a compiler to read a vocabulary."""
    try:
        kernels = jit.ready(SPECS)
    except QuantError:  # whoever needs kernels will say so
        return None
    return None if kernels is None else readers(kernels)


def readers(kernels: Mapping[jit.Spec, int]) -> Compiled:
    """The kernels as functions."""
    one: Callable[..., _Short] = ctypes.PYFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
    )
    text: Callable[..., _Short] = ctypes.PYFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
    )
    scan, build, find = one(kernels[native.SCAN]), one(kernels[native.BUILD]), kernels[native.FIND]
    find_text = text(find)

    def scanner(data: U8, offset: int, out: I64) -> int:
        args = np.array([address(data), offset, len(data), len(out) - 1, address(out), 0], np.int64)
        scan(address(args), 0, 0)
        return int(args[native.FOUND // 8])

    def tables(data: U8, offsets: I64, include: U8 | None, last: bool) -> Find | None:
        count = len(offsets) - 1
        size = max(_MIN_SLOTS, 1 << (2 * count - 1).bit_length()) if count else _MIN_SLOTS
        table = np.zeros(size, np.int32)
        offsets = np.ascontiguousarray(offsets)
        include = None if include is None else np.ascontiguousarray(include, np.uint8)
        args = np.zeros(native.DONE // 8 + 1, np.int64)
        for slot, value in (
            (native.STRINGS, address(data)),
            (native.OFFSETS, address(offsets)),
            (native.FIRST, count - 1 if last else 0),
            (native.STEP, -1 if last else 1),
            (native.N_STEPS, count),
            (native.INCLUDE, 0 if include is None else address(include)),
            (native.TABLE, address(table)),
            (native.MASK, size - 1),
        ):
            args[slot // 8] = value
        at = address(args)
        build(at, 0, 0)
        if not args[native.DONE // 8]:
            return None  # many texts fall into one place: a file that was made for it
        kept = data, offsets, table, args

        def number(text: bytes) -> int | None:
            assert kept
            out = ctypes.c_int64()
            find_text(at, len(text).to_bytes(8, "little") + text, ctypes.addressof(out))
            return None if out.value < 0 else out.value

        return number

    return Compiled(scanner, tables)
