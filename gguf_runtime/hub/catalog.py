"""The models that have a name: models/catalog.toml as frozen rows."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gguf_runtime.hub.places import models_dir

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalog.

    `parts[i]` is the path inside the wheel of `packages[i]`; the parts in this order are the file.
    Digests are lower-case hex.
    """

    name: str
    title: str
    architecture: str
    parameters: str
    type: str
    context: int
    template: bool
    licence: str
    licence_note: str
    file: str
    size_bytes: int
    download_bytes: int
    sha256: str
    source: str
    packages: tuple[str, ...]
    parts: tuple[str, ...]
    part_sha256: tuple[str, ...]
    page: str

    @property
    def path(self) -> Path:
        """Where `pull` puts the file; it need not exist."""
        return models_dir() / self.file

    @property
    def present(self) -> bool:
        """Whether the file is there, whole by its size (digests are checked by `pull`)."""
        try:
            return self.path.stat().st_size == self.size_bytes
        except OSError:
            return False


@cache
def entries() -> dict[str, Entry]:
    """All rows, by name, in the order of the file."""
    rows = tomllib.loads(_catalog_file().read_text(encoding="utf-8"))
    return {
        name: Entry(name=name, **{k: _frozen(v) for k, v in row.items()})
        for name, row in rows.items()
    }


def find(name: str) -> Entry | None:
    """The row of a name; letter case does not matter."""
    return entries().get(name.lower())


def _catalog_file() -> Path:
    """The wheel's copy, or the file itself in a checkout."""
    copy = _HERE / "catalog.toml"
    return copy if copy.exists() else _HERE.parents[1] / "models" / "catalog.toml"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
