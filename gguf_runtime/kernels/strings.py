"""The strings of a GGUF array: where each starts, and which number a text has.

A string is a u64 length and its bytes. `scan_lengths` is the one part of reading a vocabulary that
is sequential; `build_table` and `find_string` do what a dictionary of the texts would do, without
a Python object for each. See `gguf.tables` for their callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.jit import kernel
from quant.simd import v

if TYPE_CHECKING:
    from quant.compile import KernelFn

DATA, OFFSET, SIZE, COUNT, OUT, FOUND = range(0, 48, 8)
STRINGS, OFFSETS, FIRST, STEP, N_STEPS, INCLUDE, TABLE, MASK, DONE = range(0, 72, 8)
LIMIT = 1000  # slots that are looked at for one text; more come of a file that was made for it

_FACTOR = -7046029254386353131  # 2^64 divided by the golden ratio, odd


def hash_of(string: int) -> int:
    """A number of 47 bits from a string's length and bytes, spread evenly."""
    n = v.ld_i64(string)
    at, end, h = string + 8, string + 8 + n, n
    while at + 8 <= end:
        h = (h ^ v.ld_i64(at)) * _FACTOR
        h = h ^ v.lshr(h, 32)
        at += 8
    while at < end:
        h = (h ^ v.ld_u8(at)) * _FACTOR
        h = h ^ v.lshr(h, 32)
        at += 1
    return v.lshr(h * _FACTOR, 17)


def same(a: int, b: int) -> int:
    """Whether two strings are equal, 1 or 0."""
    n = v.ld_i64(a)
    if v.ld_i64(b) != n:
        return 0
    k = 8
    while k + 8 <= n + 8:
        if v.ld_i64(a + k) != v.ld_i64(b + k):
            return 0
        k += 8
    while k < n + 8:
        if v.ld_u8(a + k) != v.ld_u8(b + k):
            return 0
        k += 1
    return 1


@kernel
def scan_lengths() -> KernelFn:
    """Where the strings of an array start.

    args   0 data, bytes of the file · 8 where the first string's length stands · 16 bytes in data
           24 how many strings · 32 out i64 [count + 1] written as far as found · 40 found, written
    task   the only one
    does   out[i] = where string i's length stands, and in the end where the last string ends; stops
           before a string that is not wholly inside the data
    exact  as `gguf.strings.python_scan`
    """

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


@kernel
def build_table() -> KernelFn:
    """A table of hashes, open addressing: of equal strings the one that comes first stays.

    args   0 data · 8 offsets i64 of the strings in it · 16 the first string · 24 step, 1 or -1 · 32
           how many · 40 include u8 per string, or 0 for all of them · 48 table i32 [mask + 1] of
           zeros, written: string + 1 · 56 mask, 2^n - 1, n < 31 · 64 done, written: 1, or 0 where a
           place was not found in LIMIT slots
    task   the only one
    """

    def build_table(args: int, task: int, thread: int) -> None:
        data, offsets = v.ld_i64(args + STRINGS), v.ld_i64(args + OFFSETS)
        i, step, left = v.ld_i64(args + FIRST), v.ld_i64(args + STEP), v.ld_i64(args + N_STEPS)
        include, table = v.ld_i64(args + INCLUDE), v.ld_i64(args + TABLE)
        mask = v.ld_i64(args + MASK)
        v.st_i64(args + DONE, 0)
        while left > 0:
            wanted = 1
            if include != 0:
                wanted = v.ld_u8(include + i)
            if wanted != 0:
                string = data + v.ld_i64(offsets + 8 * i)
                slot, tries = hash_of(string) & mask, 0
                while True:
                    other = v.ld_i32(table + 4 * slot)
                    if other == 0:
                        v.st_i32(table + 4 * slot, i + 1)
                        break
                    if same(string, data + v.ld_i64(offsets + 8 * (other - 1))) != 0:
                        break
                    slot = (slot + 1) & mask
                    tries += 1
                    if tries > LIMIT:
                        return
            i += step
            left -= 1
        v.st_i64(args + DONE, 1)

    return build_table


@kernel
def find_string() -> KernelFn:
    """`find_string(args, query, out)`: args as of `build_table`, query a string, out i64 written.

    does   out = the string of the table that equals the query, or -1
    """

    def find_string(args: int, query: int, out: int) -> None:
        data, offsets = v.ld_i64(args + STRINGS), v.ld_i64(args + OFFSETS)
        table, mask = v.ld_i64(args + TABLE), v.ld_i64(args + MASK)
        slot = hash_of(query) & mask
        found = -1
        while True:
            other = v.ld_i32(table + 4 * slot) - 1
            if other < 0:
                break
            if same(query, data + v.ld_i64(offsets + 8 * other)) != 0:
                found = other
                break
            slot = (slot + 1) & mask
        v.st_i64(out, found)

    return find_string


SPECS = SCAN, BUILD, FIND = scan_lengths.spec(), build_table.spec(), find_string.spec()
