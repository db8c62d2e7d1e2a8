"""Models in several files: from any part, or the folder, to all parts in order.

The `split.*` metadata decide whether a file is a part; its name only serves to find the others.
`split.no` counts from 0, names count from 1.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

from gguf_runtime.errors import FileError
from gguf_runtime.gguf.values import Metadata

__all__ = ["part_of", "resolve", "siblings"]

NAME = re.compile(r"(?P<stem>.*)-(?P<no>\d{5,})-of-(?P<count>\d{5,})\.gguf", re.DOTALL)
PARTS = 10_000
SHOWN = 8


def resolve(path: Path) -> Path:
    """The file to open first: the path itself, or the one model that a folder holds."""
    try:
        if not path.is_dir():
            return path
        files = sorted(p for p in path.iterdir() if p.suffix == ".gguf" and p.is_file())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"cannot be opened: {reason}", where=path) from None
    models: dict[str, Path] = {}
    for file in files:
        match = NAME.fullmatch(file.name)
        models.setdefault(f"{match['stem']} {match['count']}" if match else file.name, file)
    if len(models) == 1:
        return next(iter(models.values()))
    if not models:
        raise FileError(
            "the folder holds no GGUF file", where=path, expected="one file or its parts"
        )
    names = [p.name for p in models.values()]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    raise FileError(
        f"the folder holds {len(names):,} models",
        where=path,
        expected="one file or its parts",
        got=", ".join(names[:SHOWN]) + more,
        hint="name one of the files",
    )


def part_of(path: Path, metadata: Metadata) -> tuple[int, int]:
    """(number from 0, count of parts) that the metadata state; (0, 1) of a complete file."""
    count = _number(path, metadata, "split.count", 1)
    no = _number(path, metadata, "split.no", 0)
    if count > PARTS:
        _contradiction(path, "key split.count is out of range", f"at most {PARTS:,}", count)
    if count <= 1:
        return 0, 1
    if no >= count:
        _contradiction(path, "key split.no is out of range", f"below split.count {count:,}", no)
    return no, count


def siblings(path: Path, no: int, count: int) -> list[Path]:
    """The paths of all parts, all there; FileError with the missing names otherwise."""
    match = NAME.fullmatch(path.name)
    if match is None or (int(match["no"]), int(match["count"])) != (no + 1, count):
        _contradiction(
            path,
            f"this is part {no + 1:,} of {count:,}, but its name does not say so",
            f"a name that ends in -{no + 1:05}-of-{count:05}.gguf",
            path.name,
            "give the parts their published names",
        )
    paths = [path.with_name(f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    missing = [p.name for p in paths if not p.is_file()]
    if missing:
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        raise FileError(
            f"{len(missing):,} of {count:,} parts are missing: {', '.join(missing[:SHOWN])}{more}",
            where=path,
            expected=f"{count:,} parts in {path.parent}",
            got=f"{count - len(missing):,}",
            hint="download the missing parts into the same folder",
        )
    return paths


def _number(path: Path, metadata: Metadata, key: str, default: int) -> int:
    value = metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _contradiction(path, f"key {key} is no count", "a whole number", metadata.kind(key))
    return value


def _contradiction(
    path: Path, what: str, expected: object, got: object, hint: str | None = None
) -> NoReturn:
    raise FileError(what, where=path, expected=expected, got=got, hint=hint)
