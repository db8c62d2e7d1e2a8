"""What other programs have on this machine: the hub's cache, ollama's store, LM Studio's folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gguf_runtime.errors import FileError
from gguf_runtime.hub import hubcache, ollama
from gguf_runtime.hub.places import head

FOLDERS = 2_000  # of LM Studio that are looked at


@dataclass(frozen=True, slots=True)
class Found:
    """A model that can be run as it lies there: `name` is what to type."""

    name: str
    path: Path
    size_bytes: int
    source: str


def found() -> list[Found]:
    """All of them, by source and name."""
    rows = [Found(*row, "hub cache") for row in hubcache.cached_models()]
    rows += [Found(*row, "ollama") for row in ollama.listed()]
    rows += [Found(str(p), p, n, "LM Studio") for p, n in _lm_studio()]
    return sorted(set(rows), key=lambda r: (r.source, r.name))


def lm_studio_folders() -> list[Path]:
    """Where LM Studio may keep models; they need not exist."""
    homes = [Path(os.path.expanduser(p)) for p in ("~/.lmstudio", "~/.cache/lm-studio")]
    pointer = head(Path(os.path.expanduser("~/.lmstudio-home-pointer")), 4096)
    named = pointer.decode("utf-8", "replace").strip()
    if os.path.isabs(named):
        homes.insert(0, Path(named))
    return [h / "models" for h in dict.fromkeys(homes) if h.is_absolute()]


def _lm_studio() -> Iterator[tuple[Path, int]]:
    """(file, bytes) below `models/PUBLISHER/REPOSITORY/`; of several parts the first."""
    from gguf_runtime.hub.resolve import models_in, size_on_disk

    left = FOLDERS
    for root in lm_studio_folders():
        for publisher in _folders(root):
            for repository in _folders(publisher):
                left -= 1
                if left < 0:
                    return
                with suppress(FileError, OSError):
                    for path in models_in(repository):
                        if "mmproj" not in path.name.lower():
                            yield path, size_on_disk(path)


def _folders(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(p for p in folder.iterdir() if p.is_dir())
    return []
