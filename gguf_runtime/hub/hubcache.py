"""Models of the Hugging Face hub that are on this machine, found without network or library.

The hub's cache: `models--ORG--NAME/` with `refs/main` (a commit), `snapshots/COMMIT/…` (links) and
`blobs/`. `hf:ORG/NAME[:QUANT or :FILE]` names a model in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gguf_runtime.errors import FileError, ModelError, show
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import head
from gguf_runtime.hub.quants import DEFAULT, Choice, choices, choose, name_of

PREFIX = "hf:"
DEPTH, ENTRIES = 4, 10_000  # of a snapshot that are looked at
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9])?"
_REPO = re.compile(rf"{_WORD}/{_WORD}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and what is wanted of it: a quantization, a file, or None for the default."""

    repo: str
    want: str | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f":{self.want}" if self.want else "")


def is_hub_name(text: str) -> bool:
    """Whether a MODEL argument is a name on the hub."""
    return text.lower().startswith(PREFIX)


def parse(text: str) -> HubName:
    """The parts of `hf:ORG/NAME[:QUANT or :FILE]`; ModelError that shows the form otherwise."""
    repo, _, want = text[len(PREFIX) :].partition(":")
    if not _REPO.fullmatch(repo) or "--" in repo or ".." in repo or text.endswith(":"):
        raise ModelError(
            f"{show(text)} names nothing on the hub",
            expected="hf:ORG/NAME, hf:ORG/NAME:QUANT or hf:ORG/NAME:FILE",
            hint="for example hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
        )
    return HubName(repo, want or None)


def cache_dir() -> Path | None:
    """Where the hub's cache is; None where the environment names no place."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if named := os.environ.get(variable):
            return Path(os.path.abspath(os.path.expanduser(os.path.expandvars(named)))) / below
    folder = Path(os.path.expanduser("~/.cache/huggingface/hub"))
    return folder if folder.is_absolute() else None


def repo_dir(repo: str) -> Path | None:
    """The folder of a repository; it need not exist."""
    folder = cache_dir()
    return folder / ("models--" + repo.replace("/", "--")) if folder is not None else None


def find(name: HubName) -> Path | None:
    """The file of a model that is in the cache; None where it is not.

    Raises:
        ModelError: several models of the repository are there, and none is the default.
        FileError: parts of it are missing.
    """
    later: Exception | None = None
    for snapshot in snapshots(name.repo):
        there = choices(gguf_files(snapshot))
        if not there:
            continue
        try:
            choice = choose(there, name.want, name.repo)
        except ModelError as e:
            later = later or (e if name.want is None else None)
            continue
        if not choice.missing:
            return snapshot / choice.file
        later = later or _incomplete(name, choice)
    if later is not None:
        raise later
    return None


def snapshots(repo: str) -> list[Path]:
    """Folders of the commits that are there: the main branch first, then the newest."""
    folder = repo_dir(repo)
    if folder is None:
        return []
    main = head(folder / "refs" / "main", 100).decode("ascii", "replace").strip()
    found = []
    with suppress(OSError):
        found = [p for p in (folder / "snapshots").iterdir() if p.is_dir()]
    return sorted(found, key=lambda p: (p.name != main, -_changed(p), p.name))


def gguf_files(snapshot: Path) -> dict[str, int]:
    """GGUF files of a snapshot: name in the repository -> bytes. Dangling links are left out."""
    found: dict[str, int] = {}
    for path in _walk(snapshot, DEPTH):
        if path.name.lower().endswith(".gguf"):
            with suppress(OSError):
                if path.is_file():
                    found[path.relative_to(snapshot).as_posix()] = path.stat().st_size
    return found


def cached_models() -> Iterator[tuple[str, Path, int]]:
    """(name, file, bytes) of every model in the cache."""
    folder = cache_dir()
    names: list[str] = []
    if folder is not None:
        with suppress(OSError):
            names = sorted(n for n in os.listdir(folder) if n.startswith("models--"))
    for name in names:
        repo = name.removeprefix("models--").replace("--", "/", 1)
        if not _REPO.fullmatch(repo):
            continue
        for snapshot in snapshots(repo)[:1]:
            there = choices(gguf_files(snapshot))
            for choice in there:
                if not choice.missing:
                    short = f"{PREFIX}{repo}:{name_of(choice, there)}"
                    yield short, snapshot / choice.file, choice.size_bytes


def not_here(name: HubName) -> ModelError:
    """The error of a model that was not pulled."""
    near = suggestion(str(name), [n for n, _, _ in cached_models()])
    return ModelError(
        f"{name} is not on this machine",
        hint=(f"did you mean {near}? or get it: " if near else "")
        + f"gguf-runtime pull {name}"
        + ("" if name.want else f"   (its {DEFAULT} file, where there is one)"),
    )


def _incomplete(name: HubName, choice: Choice) -> FileError:
    return FileError(
        f"{len(choice.missing):,} parts of this model are missing",
        where=str(name),
        expected=f"{len(choice.files) + len(choice.missing):,} parts",
        got=f"{len(choice.files):,}; the first that is missing is {choice.missing[0]}",
        hint=f"gguf-runtime pull {name}",
    )


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Files below a folder, bounded in depth and number; linked folders are not entered."""
    left = ENTRIES
    folders = [(folder, depth)]
    while folders:
        here, levels = folders.pop()
        with suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    if levels > 0:
                        folders.append((Path(entry.path), levels - 1))
                else:
                    yield Path(entry.path)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
