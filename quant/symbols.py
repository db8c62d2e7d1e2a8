"""Symbols of a relocatable object: which names it needs from outside, which it offers.

A small reader of ELF64, Mach-O 64 and COFF, little-endian, for objects that LLVM wrote. It exists
because llvmlite loads an object with an unresolved symbol happily, and the first call crashes.
Sources: System V ABI (gABI 4.1, "Symbol Table"); mach-o/nlist.h; Microsoft PE/COFF, part 5.4.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quant.errors import QuantError


class Symbols(NamedTuple):
    """Names without the platform's leading underscore, sorted."""

    undefined: tuple[str, ...]
    defined: tuple[str, ...]  # visible from outside the object


def read_symbols(data: bytes) -> Symbols:
    """Undefined and defined external symbols; QuantError when `data` is no such object."""
    try:
        if data[:4] == b"\x7fELF":
            rows = _elf(data)
        elif data[:4] == b"\xcf\xfa\xed\xfe":
            rows = _macho(data)
        elif data[:2] in (b"\x64\x86", b"\x64\xaa"):
            rows = _coff(data)
        else:
            raise QuantError("not a relocatable object", got=data[:4].hex() or "no bytes")
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, QuantError):
            raise
        raise QuantError("a relocatable object with a damaged symbol table") from error
    undefined = sorted({name for name, known in rows if not known})
    return Symbols(tuple(undefined), tuple(sorted({name for name, known in rows if known})))


def _name(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


def _elf(data: bytes) -> list[tuple[str, bool]]:
    if data[4] != 2 or data[5] != 1:
        raise QuantError("an ELF object that is not 64-bit little-endian")
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    heads = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_size) for i in range(count)
    ]
    rows = []
    for head in heads:
        if head[1] != 2:  # SHT_SYMTAB
            continue
        names_at = heads[head[6]][4]
        for at in range(head[4], head[4] + head[5], 24):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if name and info >> 4:  # named, not local
                rows.append((_name(data, names_at + name), section != 0))
    return rows


def _macho(data: bytes) -> list[tuple[str, bool]]:
    (commands,) = struct.unpack_from("<I", data, 16)
    rows, at = [], 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == 2:  # LC_SYMTAB
            table, count, names_at, _ = struct.unpack_from("<IIII", data, at + 8)
            for i in range(count):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", data, table + 16 * i)
                # N_STAB is for debuggers; N_EXT; type 0 is undefined, or common with a size
                if not kind & 0xE0 and kind & 1:
                    text = _name(data, names_at + name).removeprefix("_")
                    rows.append((text, bool(kind & 0x0E) or value != 0))
        at += size
    return rows


def _coff(data: bytes) -> list[tuple[str, bool]]:
    table, count = struct.unpack_from("<II", data, 8)
    names_at, rows, i = table + 18 * count, [], 0
    while i < count:
        raw, value, section, _, storage, more = struct.unpack_from("<8sIhHBB", data, table + 18 * i)
        if storage == 2:  # external
            if raw[:4] == b"\0\0\0\0":
                name = _name(data, names_at + int.from_bytes(raw[4:], "little"))
            else:
                name = raw.rstrip(b"\0").decode("utf-8", "replace")
            rows.append((name, section != 0 or value != 0))
        i += 1 + more
    # The linker's marker for code that uses floating point; nothing is called.
    return [row for row in rows if row[0] != "_fltused"]
