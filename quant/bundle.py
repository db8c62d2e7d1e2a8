"""Compiled kernels in one file, for machines without a compiler.

File    magic, 16 bytes | sha256 of the rest, 32 | length of the header, u64 | header (JSON) | objects
Header  system · who compiled it · rows: module, factory, parameters, check, instruction set, digest of
        the sources, offset and size of the object

A digest tells that a file is whole, not who made it, and objects are code that will be run: so a file
is taken only from an owner and a folder that the kernel cache would be taken from too. What is taken
must fit this program's own sources and this machine, and may refer to nothing outside.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quant import cpu, jit, objects, targets
from quant.build import build
from quant.errors import QuantError
from quant.symbols import read_symbols

MAGIC = b"gguf-runtime k1\n"
_HEAD = len(MAGIC) + 32
_AGAIN = "make it again with this version: gguf-runtime warmup --target {} -o kernels.bin"

Objects = Mapping[tuple[jit.Spec, str], bytes]  # by kernel and instruction set


class Bundle(NamedTuple):
    """What a file holds; `digest` is that of the file."""

    system: str
    compiler: str
    objects: Objects
    sources: Mapping[tuple[jit.Spec, str], str]
    digest: str


def collect(
    machine: targets.Machine,
    specs: Sequence[jit.Spec],
    progress: jit.Progress | None = None,
    notice: jit.Notice | None = None,
) -> dict[tuple[jit.Spec, str], bytes]:
    """Objects of these kernels for a machine, compiled where the cache has none.

    Raises:
        QuantError: one does not compile.
    """
    store = jit.shared_store(notice if notice is not None else _silent)
    wanted = list(dict.fromkeys(specs))
    found: dict[tuple[jit.Spec, str], bytes] = {}
    for n, isa in enumerate(machine.isas):
        need = []
        for spec in wanted:
            data = store.get(*_place(machine, spec, isa))
            if data:
                found[spec, isa] = data
            else:
                need.append(spec)
        before = (n + 1) * len(wanted) - len(need)
        _build(machine, isa, need, found, store, progress, before, len(machine.isas) * len(wanted))
    return found


def _build(
    machine: targets.Machine,
    isa: str,
    need: list[jit.Spec],
    found: dict[tuple[jit.Spec, str], bytes],
    store: objects.Store,
    progress: jit.Progress | None,
    before: int,
    total: int,
) -> None:
    """Compile what is needed for one instruction set into `found` and the cache."""
    if not need:
        return
    if not jit.has_compiler():
        raise QuantError(str(jit.MissingError()), hint="pip install numba")

    def publish(spec: jit.Spec, data: bytes) -> None:
        name, key = _place(machine, spec, isa)
        store.put(name, key, data)
        found[spec, isa] = data

    def told(done: int, count: int, name: str) -> None:
        if progress is not None:
            progress(before + done, total, name)

    own = machine.system == targets.here()
    try:
        build(need, isa, publish, told, None if own else (machine.arch, machine.triple))
    except jit.DiedError as e:
        raise QuantError(f"{isa}: {e}", hint=e.detail or None) from e


def _place(machine: targets.Machine, spec: jit.Spec, isa: str) -> tuple[str, bytes]:
    """Name and key of an object in the cache."""
    name, key = jit.file_name(spec, isa), jit.object_key(spec, isa)
    if machine.system == targets.here():
        return name, key
    return f"{name}-{machine.system}", hashlib.sha256(key + machine.triple.encode()).digest()


def write(path: str, system: str, found: Objects) -> str:
    """Write kernels to a file; its sha256."""
    rows: list[list[Any]] = []
    at = 0
    for (spec, isa), data in found.items():
        key = jit.source_key(spec, isa).hex()
        rows.append([spec.module, spec.factory, spec.params, spec.check, isa, key, at, len(data)])
        at += len(data)
    facts = {"system": system, "compiler": objects.environment(), "kernels": rows}
    header = json.dumps(facts, separators=(",", ":")).encode()
    body = struct.pack("<Q", len(header)) + header + b"".join(found.values())
    data = MAGIC + hashlib.sha256(body).digest() + body
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        with open(scratch, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    return hashlib.sha256(data).hexdigest()


def read(path: str) -> Bundle:
    """What a file holds, its own digest checked.

    Raises:
        QuantError: it is no such file, damaged, or others could have written it.
        OSError: it cannot be read.
    """
    # O_NONBLOCK: a named pipe would be waited for without end.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        _refuse_foreign(path, os.fstat(file.fileno()))
        data = file.read()
    if not data.startswith(MAGIC):
        raise QuantError(f"{path} holds no compiled kernels")
    body = data[_HEAD:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : _HEAD]:
        raise QuantError(f"{path} is damaged: its digest does not fit", hint="copy it again")
    (size,) = struct.unpack_from("<Q", body)
    facts = json.loads(body[8 : 8 + size])
    found, sources = {}, {}
    for module, factory, params, check, isa, key, offset, length in facts["kernels"]:
        spec = jit.Spec(module, factory, tuple(params), check)
        start = 8 + size + offset
        found[spec, isa] = body[start : start + length]
        sources[spec, isa] = key
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(facts["system"], facts["compiler"], found, sources, digest)


def install(bundle: Bundle, store: objects.Store) -> dict[str, int]:
    """Put the kernels that this machine can run into the cache; how many, by instruction set.

    Raises:
        QuantError: they are another machine's or another version's, or one is not what it says.
    """
    here = targets.here()
    if bundle.system != here:
        raise QuantError(
            "these kernels are another machine's",
            expected=here or "a machine that kernels can be made for",
            got=bundle.system,
            hint=_AGAIN.format(here) if here else None,
        )
    mine = [(key, data) for key, data in bundle.objects.items() if key[1] in cpu.supported()]
    if not mine:
        there = ", ".join(sorted({isa for _, isa in bundle.objects}))
        raise QuantError(
            "this CPU can run none of these kernels", expected=", ".join(cpu.supported()), got=there
        )
    for (spec, isa), data in mine:
        _check(spec, isa, data, bundle)
    counts: dict[str, int] = {}
    for (spec, isa), data in mine:
        store.put(jit.file_name(spec, isa), jit.object_key(spec, isa), data)
        counts[isa] = counts.get(isa, 0) + 1
    return counts


def _check(spec: jit.Spec, isa: str, data: bytes, bundle: Bundle) -> None:
    try:
        ours = jit.source_key(spec, isa).hex()
    except (QuantError, ImportError):
        ours = ""
    if bundle.sources[spec, isa] != ours:
        raise QuantError(
            f"kernel {spec.symbol} was made from other sources than this program has",
            hint=_AGAIN.format(bundle.system),
        )
    symbols = read_symbols(data)
    if symbols.undefined or symbols.defined != (spec.symbol,):
        raise QuantError(
            f"the object of {spec.symbol} is not what it says",
            expected="one symbol and no other",
            got=", ".join((*symbols.defined, *symbols.undefined)) or "none",
        )


def _refuse_foreign(path: str, facts: os.stat_result) -> None:
    """QuantError where somebody else could have written what will be run."""
    if not stat.S_ISREG(facts.st_mode):
        raise QuantError(f"{path} is no file")
    if os.name != "posix":
        return
    where = f"cp {path} to a folder of your own, if you trust it"
    if facts.st_uid not in (0, os.geteuid()):
        raise QuantError(f"{path} belongs to somebody else, and kernels are code", hint=where)
    if stat.S_IMODE(facts.st_mode) & 0o022:
        raise QuantError(
            f"others may write to {path}, and kernels are code", hint=f"chmod go-w {path}"
        )


def _silent(code: str, message: str) -> None:
    """Nobody listens."""
