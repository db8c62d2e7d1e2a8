"""Where the strings of a GGUF array start: the one part of reading a vocabulary that is sequential.

args   0 data, bytes of the file · 8 where the first string's length stands · 16 bytes in data
       24 how many strings · 32 out i64 [count + 1] written as far as found · 40 found, written
task   the only one
does   a string is a u64 length and its bytes; out[i] = where string i's length stands, and in the
       end where the last string ends; stops before a string that is not wholly inside the data
exact  as `gguf.strings.python_scan`
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quant import jit
from quant.jit import kernel
from quant.simd import v

if TYPE_CHECKING:
    from quant.compile import KernelFn

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Scanner = Callable[[U8, int, I64], int]  # as gguf.strings has it

DATA, OFFSET, SIZE, COUNT, OUT, FOUND = range(0, 48, 8)


@kernel
def scan_lengths() -> KernelFn:
    """The kernel."""

    def scan_lengths(args: int, task: int, thread: int) -> None:
        data, at, size = v.ld_i64(args + DATA), v.ld_i64(args + OFFSET), v.ld_i64(args + SIZE)
        count, out = v.ld_i64(args + COUNT), v.ld_i64(args + OUT)
        found = 0
        while found < count and at <= size - 8:
            n = v.ld_i64(data + at)
            if n < 0 or n > size - 8 - at:
                break
            v.st_i64(out + 8 * found, at)
            at += 8 + n
            found += 1
        v.st_i64(out + 8 * found, at)
        v.st_i64(args + FOUND, found)

    return scan_lengths


SPEC = scan_lengths.spec()


def compiled_scan(address: int) -> Scanner:
    """A `gguf.Scanner` from the kernel's address."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)

    def scan(data: U8, offset: int, out: I64) -> int:
        args = np.array(
            [data.ctypes.data, offset, len(data), len(out) - 1, out.ctypes.data, 0], np.int64
        )
        run(int(args.ctypes.data), 0, 0)
        return int(args[FOUND // 8])

    return scan


def load_scan(notice: jit.Notice | None = None) -> Scanner:
    """The scanner, compiled or from the cache."""
    return compiled_scan(jit.load([SPEC], notice=notice)[SPEC])
