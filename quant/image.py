"""Objects -> executable memory without LLVM: importing and starting it takes longer than all kernels.

Takes what LLVM writes for kernels with ELF on x86-64 (System V ABI, AMD64 supplement 4.4) and 64-bit
Arm (ELF for the Arm 64-bit Architecture, 5.7): code and constants that refer to each other by
distance, no symbol from outside, no data that is written to. Anything else is `quant.link`'s to load
in the other way.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple

_MACHINES = {"x86_64": 62, "aarch64": 183}
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4  # kinds of sections
_EH_FRAME = 0x70000001  # how to unwind a stack: nothing here does
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_DISTANCE = (2, 4, 261)  # R_X86_64_PC32, R_X86_64_PLT32, R_AARCH64_PREL32: S + A - P in 32 bits
_PAGE = 275  # R_AARCH64_ADR_PREL_PG_HI21: distance of 4 KB pages, in bits 5-23 and 29-30
# R_AARCH64_ADD_ABS_LO12_NC, LDST8 … LDST128_ABS_LO12_NC: place in the page, in units, from bit 10
_IN_PAGE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_BRANCH = (282, 283)  # R_AARCH64_JUMP26, R_AARCH64_CALL26: distance of instructions in 26 bits

LINE = 64  # sections do not share a line of the cache

_areas: list[mmap.mmap] = []  # never unmapped: a thread may be running there


class Section(NamedTuple):
    """A row of an object's section table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class OtherKindError(Exception):
    """An object that this module does not load."""


def place(objects: Mapping[str, bytes]) -> dict[str, int] | None:
    """Address of each symbol in its object; None where this cannot load all of them.

    Raises:
        OSError: the system gives no executable memory.
    """
    machine = _MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None or sys.maxsize < 2**32:
        return None
    try:
        return _place(objects, machine)
    except (OtherKindError, struct.error, IndexError, ValueError, OverflowError):
        return None


def _place(objects: Mapping[str, bytes], machine: int) -> dict[str, int]:
    tables = {symbol: _sections(data, machine) for symbol, data in objects.items()}
    starts: dict[str, dict[int, int]] = {symbol: {} for symbol in objects}  # of sections
    end = code = 0
    for flags in (_ALLOC, _ALLOC | _EXEC):  # constants, then code on pages of its own
        end = code = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        for symbol, sections in tables.items():
            for i, s in enumerate(sections):
                if _is_loaded(s, objects[symbol]) and s.flags & (_ALLOC | _EXEC) == flags:
                    starts[symbol][i] = -(-end // max(s.align, LINE)) * max(s.align, LINE)
                    end = starts[symbol][i] + s.size
    image = bytearray(end)
    for symbol, data in objects.items():
        for i, start in starts[symbol].items():
            section = tables[symbol][i]
            image[start : start + section.size] = _bytes(data, section)
    at = {s: _relocate(image, s, data, tables[s], starts[s]) for s, data in objects.items()}
    base = _executable(image, code)
    return {symbol: base + start for symbol, start in at.items()}


def _sections(data: bytes, machine: int) -> list[Section]:
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, machine):
        raise OtherKindError
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    row = struct.Struct("<IIQQQQIIQQ")
    rows = [Section(*row.unpack_from(data, at + i * size)) for i in range(count)]
    (names,) = struct.unpack_from("<H", data, 62)
    start = rows[names].offset
    # Arm has no kind of its own for how to unwind a stack.
    unwind = [data[start + s.name : start + s.name + 10] == b".eh_frame\0" for s in rows]
    return [s._replace(kind=_EH_FRAME) if u else s for s, u in zip(rows, unwind, strict=True)]


def _is_loaded(s: Section, data: bytes) -> bool:
    if not s.flags & _ALLOC or s.kind == _EH_FRAME or not s.size:
        return False
    if s.kind != _PROGBITS or s.flags & _WRITE or s.align > mmap.PAGESIZE or s.size > len(data):
        raise OtherKindError
    return True


def _bytes(data: bytes, s: Section) -> bytes:
    found = data[s.offset : s.offset + s.size]
    if len(found) != s.size:
        raise OtherKindError
    return found


def _relocate(
    image: bytearray, symbol: str, data: bytes, sections: list[Section], starts: dict[int, int]
) -> int:
    """Write the distances between the object's sections; where its symbol stands in the image."""
    (table,) = (s for s in sections if s.kind == _SYMTAB)
    names = _bytes(data, sections[table.link])
    symbols = list(struct.iter_unpack("<IBBHQQ", _bytes(data, table)))
    for s in sections:
        if s.kind != _RELA or s.info not in starts:
            continue
        begin, size = starts[s.info], sections[s.info].size
        for offset, info, addend in struct.iter_unpack("<QQq", _bytes(data, s)):
            _, _, _, section, value, _ = symbols[info >> 32]
            if section not in starts or offset + 4 > size:
                raise OtherKindError
            _write_distance(
                image, info & 0xFFFFFFFF, begin + offset, starts[section] + value + addend
            )
    for name, _, _, section, value, _ in symbols:
        if names[name : names.index(b"\0", name)] == symbol.encode() and section in starts:
            return int(starts[section] + value)
    raise OtherKindError


def _write_distance(image: bytearray, kind: int, at: int, to: int) -> None:
    """One relocation; places are in the image, which begins on a page of the system."""
    if kind in _DISTANCE:
        struct.pack_into("<i", image, at, to - at)
        return
    (word,) = struct.unpack_from("<I", image, at)
    if kind == _PAGE:
        pages = (to >> 12) - (at >> 12)
        if not -(1 << 20) <= pages < 1 << 20:
            raise OtherKindError
        word = word & ~0x60FFFFE0 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in _IN_PAGE and not to & ((1 << _IN_PAGE[kind]) - 1):
        word = word & ~0x3FFC00 | (to & 0xFFF) >> _IN_PAGE[kind] << 10
    elif kind in _BRANCH and not (to - at) & 3 and -(1 << 27) <= to - at < 1 << 27:
        word = word & ~0x3FFFFFF | (to - at) >> 2 & 0x3FFFFFF
    else:
        raise OtherKindError
    struct.pack_into("<I", image, at, word)


def _executable(image: bytearray, code: int) -> int:
    """The image in memory of its own: constants to read, code from `code` on to run."""
    area = mmap.mmap(-1, max(len(image), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[: len(image)] = bytes(image)
    first = ctypes.c_char.from_buffer(area)
    base = ctypes.addressof(first)
    libc = ctypes.CDLL(None, use_errno=True)
    protect = libc.mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    parts = ((0, code, mmap.PROT_READ), (code, len(image) - code, mmap.PROT_READ | mmap.PROT_EXEC))
    for start, size, allowed in parts:
        if size and protect(base + start, size, allowed):
            raise OSError(ctypes.get_errno(), "mprotect")
    _areas.append(area)
    return base
