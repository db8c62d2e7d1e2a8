"""Any bytes open, or raise our error: within two seconds, within 200 MB, never anything else.

`make fuzz-long` (GGUF_RUNTIME_FUZZ_MINUTES) goes on with fresh seeds for as long as it says.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gguf_runtime.errors import FileError, GGUFRuntimeError, ModelError
from gguf_runtime.gguf import open_file
from gguf_runtime.gguf.report import as_dict, describe
from tests.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U8,
    U32,
    array,
    build,
    entry,
    header,
    pair,
    string,
    tiny,
)

SECONDS = 5 * 2.0  # five times the promise: other work may share the machine
BYTES = 200 << 20
MUTATIONS = 300  # per seed file
MINUTES = float(os.environ.get("GGUF_RUNTIME_FUZZ_MINUTES", "0"))
ARCHS = Path(__file__).parents[1] / "data" / "archs"
NUMBERS = (0, 1, 2, 7, 8, 9, 10, 12, 13, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**61)
LARGE = (*NUMBERS, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 32)


def seeds() -> dict[str, bytes]:
    """Name and bytes of sound files; the header is what gets mutated."""
    found = {"tiny": tiny(), "tiny-2": tiny(version=2), "tiny-big": tiny(order=">")}
    for name in ("gemma3", "quant-llama-q4_k_m"):
        found[name] = (ARCHS / f"{name}.gguf").read_bytes()
    return found


def header_end(raw: bytes) -> int:
    """Where mutations stop to be interesting: the last tensor name, or all of a small file."""
    return min(len(raw), max(raw.rfind(b".weight") + 64, 512))


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """One to four changes of the kinds that broke readers before."""
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(header_end(raw))
        match rng.randrange(8):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes([out[at] ^ 1 << rng.randrange(8)] if at < len(out) else [])
            case 2:
                out[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF)
            case 3:
                out[at : at + 8] = struct.pack("<Q", rng.choice(LARGE))
            case 4:
                del out[at : at + rng.choice((1, 4, 8, 100))]
            case 5:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 8, 100)))
            case 6:
                there = rng.randrange(header_end(raw))
                out[at : at + 24] = out[there : there + 24]
            case _:
                del out[rng.randrange(len(out) + 1) if rng.randrange(4) else at :]
    return bytes(out)


def examine(path: Path) -> str:
    """Open a file and look at all of it; the word says how far that went."""
    start = time.perf_counter()
    try:
        with open_file(path, foreign_order=True) as file:
            size = path.stat().st_size
            for info in file.tensors.values():
                assert info.offset + info.size_bytes <= size or not info.n_elements
                if info.sized and file.order == "<":
                    assert file.tensor_bytes(info.name).nbytes == info.size_bytes
            describe(file, supported=["llama"], kv=True, tensors=True).encode()
            json.dumps(as_dict(file, kv=True, tensors=True), allow_nan=False).encode()
            try:
                file.manifest()
                word = "opened"
            except ModelError as error:
                str(error).encode()
                word = "model error"
    except FileError as error:
        text = str(error)
        text.encode()
        assert text.startswith(str(path))
        assert text.count("\n") <= 2
        assert len(text) < len(str(path)) + 3000
        word = "file error"
    assert time.perf_counter() - start < SECONDS
    return word


def rewrite(path: Path, raw: bytes) -> Path:
    path.unlink(missing_ok=True)  # the old one may still be mapped
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name", seeds())
def test_mutated_files_open_or_raise_our_error(name, tmp_path):
    raw, words = seeds()[name], set()
    end = time.monotonic() + 60 * MINUTES / len(seeds())
    seed = 0
    while seed < MUTATIONS or time.monotonic() < end:
        rng = random.Random(f"{name} {seed}")
        path = rewrite(tmp_path / f"{seed}.gguf", mutate(raw, rng))
        try:
            words.add(examine(path))
        except Exception as error:
            error.add_note(f"seed {name} {seed}")
            raise
        path.unlink()
        seed += 1
    assert words == {"opened", "model error", "file error"} or name == "tiny-big"


@pytest.mark.parametrize("name", ["tiny", "tiny-big"])
def test_a_header_cut_anywhere_is_an_error(name, tmp_path):
    raw = seeds()[name]
    for cut in range(len(raw)):  # every field border, and every other place
        path = rewrite(tmp_path / "cut.gguf", raw[:cut])
        with pytest.raises(FileError):
            open_file(path, foreign_order=True)
    open_file(rewrite(tmp_path / "cut.gguf", raw), foreign_order=True)


GIGABYTE = 1 << 30
ARCH = pair("general.architecture", STRING, "llama")


def key(kind: int, payload: bytes) -> bytes:
    return header(0, 1) + string("k") + struct.pack("<I", kind) + payload


def text_array(kind: int, count: int) -> bytes:
    return key(ARRAY, struct.pack("<IQ", kind, count))


def long_text(i: int) -> bytes:
    return string(f"k{i}") + struct.pack("<IQ", STRING, 1 << 20) + b"\xf0\x9f\x98\x80" * (1 << 18)


def floats(i: int) -> bytes:
    return string(f"k{i}") + struct.pack("<IIQ", ARRAY, F32, 1 << 21) + bytes(4 << 21)


def many_tensors() -> bytes:
    n = 1 << 16
    rows = (entry(f"{i:256}", (1, 1, 1, 1), 24, 32 * i) for i in range(n))
    return header(n, 1) + ARCH + b"".join(rows)


def many_layers() -> bytes:
    tensors = [(f"blk.{i}.w", (1,), 24, b"\0") for i in range(4096)]
    return build([ARCH, pair("llama.block_count", U32, 4096)], tensors)


# Files made to use up time or memory: how they begin, and the size up to which zero bytes follow.
HOSTILE: dict[str, tuple[Callable[[], bytes], int]] = {
    "a string of 2^40 bytes": (lambda: key(STRING, struct.pack("<Q", 1 << 40)), 1 << 20),
    "a string of a gigabyte": (lambda: key(STRING, struct.pack("<Q", GIGABYTE - 99)), GIGABYTE),
    "60 strings of a megabyte": (lambda: header(0, 60) + b"".join(map(long_text, range(60))), 0),
    "2^27 empty strings": (lambda: text_array(STRING, 1 << 27), GIGABYTE + 99),
    "2^22 empty strings": (lambda: text_array(STRING, 1 << 22), GIGABYTE),
    "2^29 bytes": (lambda: text_array(U8, 1 << 29), GIGABYTE),
    "9 times 2^21 floats": (lambda: header(0, 9) + b"".join(map(floats, range(9))), 0),
    "2^26 empty arrays": (lambda: text_array(ARRAY, 1 << 26), GIGABYTE),
    "2^16 empty arrays": (lambda: text_array(ARRAY, 1 << 16), GIGABYTE),
    "arrays in arrays": (lambda: key(ARRAY, struct.pack("<IQ", ARRAY, 1) * 100_000), 2 << 20),
    "2^20 keys": (lambda: header(0, 1 << 20), 32 << 20),
    "2^16 keys": (
        lambda: header(0, 1 << 16) + b"".join(pair(f"{i:x}", U8, 1) for i in range(1 << 16)),
        0,
    ),
    "1,000 keys of 65,535 bytes": (
        lambda: header(0, 1000) + b"".join(pair(f"{i:>65535}", U8, 1) for i in range(1000)),
        0,
    ),
    "2^20 tensors": (lambda: header(1 << 20, 0), 64 << 20),
    "2^16 tensors": (many_tensors, 64 << 20),
    "4,096 layers": (many_layers, 0),
    "a tensor of 2^60 values": (
        lambda: header(1, 1) + ARCH + entry("w", (1 << 30, 1 << 30), 0, 0),
        1 << 20,
    ),
    "2^22 truth values": (lambda: text_array(BOOL, 1 << 22), 8 << 20),
    "900 arrays of 1,000 strings": (
        lambda: build([pair("k", ARRAY, array(ARRAY, [array(STRING, ["x"] * 1000)] * 900))]),
        0,
    ),
}


def examine_within_memory(folder: Path) -> None:
    """Runs in a process of its own, where any allocation beyond the promise fails."""
    import resource

    examine(rewrite(folder / "warm.gguf", tiny()))  # imports and first allocations are not counted
    for name, (start, size) in HOSTILE.items():
        path = rewrite(folder / "hostile.gguf", start())
        with path.open("r+b") as out:
            out.truncate(max(size, path.stat().st_size))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + path.stat().st_size + BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            print(f"{name}: {examine(path)}")
        except Exception as error:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            error.add_note(name)
            raise
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to measure memory")
def test_hostile_files_are_done_with_in_time_and_memory(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.fuzz import test_gguf_mutations as t;"
        "t.examine_within_memory(Path(sys.argv[1]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(HOSTILE)


def test_our_errors_survive_being_sent_between_processes():
    import pickle

    error = FileError("w", where="p", expected=1, got=2, hint="h")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, GGUFRuntimeError)
    assert str(again) == str(error) == "p: w\n  expected 1, got 2\n  h"
    assert again.as_dict()["exit_code"] == 3
