"""Packs kept as a file: mapped read-only, started from at once, shared by all processes that use them.

The files stand in packs/ of the cache folder, which must be ours alone (0700), as that of compiled
kernels must. What is in one, and how it is checked, says `engine.pack_file`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gguf_runtime.engine.pack_file import SUFFIX, make_packs, name_of, open_packs, read_header
from gguf_runtime.engine.packs import Progress
from gguf_runtime.errors import MachineError
from gguf_runtime.graph.weights import Weight
from quant import objects
from quant.packing import Pack
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

FOLDER = "packs"

Notice = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class PackFile:
    """Packs in a file, and whether this start made it."""

    path: Path
    size_bytes: int
    packs: Mapping[Weight, Pack]
    made: bool


def folder() -> Path | None:
    """Where packs are kept; None when no cache folder is known."""
    base = objects.default_base()
    return Path(base) / FOLDER if base else None


def keep_packs(
    file: GGUFFile,
    weights: Sequence[Weight],
    pool: Pool,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> PackFile | None:
    """The packs of these weights in a file, made first where there is none that is whole.

    Returns None, after a notice, where no file can be kept: the weights must go into memory then.
    """
    tell = notice if notice is not None else _silent
    place = folder()
    why = _unusable(place)
    if place is None or why:
        tell("pack-cache", f"packs are not kept: {why}")
        return None
    path = place / name_of(file, weights)
    found = None
    if path.exists():
        found, why = open_packs(path, file, weights, progress)
        if found is None:
            tell("packs-rebuilt", f"{path} is made anew: {why}")
    made = found is None
    if found is None:
        try:
            make_packs(path, file, weights, pool, progress)
        except OSError as e:
            tell("pack-cache", f"packs are not kept: {path}: {e.strerror or e}")
            return None
        found, why = open_packs(path, file, weights, progress)
        if found is None:
            raise MachineError(
                "packs that were just written cannot be read", where=path, got=why, hint="try again"
            )
    return PackFile(path, path.stat().st_size, found, made)


def listed() -> list[tuple[Path, int, str]]:
    """(path, bytes, name of the model file) of every file of packs, by path."""
    found = []
    place = folder()
    if place is not None and place.is_dir():
        for path in sorted(place.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                header = read_header(path)[0]
                name = str(header.get("model", "")) if header else "damaged"
                found.append((path, path.stat().st_size, name))
    return found


def _unusable(place: Path | None) -> str | None:
    """Why no packs can be kept there; the folder is made where it is missing."""
    if place is None:
        return "there is no cache folder"
    try:
        if not place.is_dir():
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return objects.why_unsafe(str(place))
    except OSError as e:
        return f"{place}: {e.strerror or e}"


def _silent(code: str, message: str) -> None:
    """Nobody listens."""
