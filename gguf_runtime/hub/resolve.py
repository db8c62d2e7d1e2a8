"""From what a person types to a file: a catalog name, a path, a folder with one model, a shard."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gguf_runtime.errors import FileError, ModelError, show
from gguf_runtime.hub.catalog import entries, find
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import has_magic, models_dir

SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")
LATER = ("hf:", "ollama:")


def resolve(model: str | os.PathLike[str]) -> Path:
    """The file of a model; for several shards, the first one.

    Raises:
        ModelError: an unknown name, or a known one that was not pulled.
        FileError: a path that leads to no GGUF file, or a folder with none or several.
    """
    text = os.fspath(model)
    if not text:
        raise ModelError("the model's name is empty", hint="gguf-runtime list shows the names")
    if isinstance(model, str):
        entry = find(text)
        if entry is not None and entry.present:
            return entry.path
        local = models_dir() / f"{text}.gguf"
        if entry is None and not _looks_like_path(text) and local.is_file():
            return local
        if entry is not None and not Path(text).exists():
            raise ModelError(
                f"{entry.name} is not on this machine",
                got=f"no file {entry.path}"
                if not entry.path.exists()
                else f"a file of another size at {entry.path}",
                hint=f"gguf-runtime pull {entry.name}"
                f"   ({size(entry.download_bytes)}, {entry.licence})",
            )
        if entry is None and not _looks_like_path(text) and not Path(text).exists():
            raise _unknown_name(text)
    return _from_path(Path(text).expanduser())


def size(n_bytes: int) -> str:
    """A size in words: 93 MB, 1.2 GB."""
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1e3:.0f} kB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1_000_000_000 else f"{n_bytes / 1e9:.1f} GB"


def models_in(folder: Path) -> list[Path]:
    """GGUF files of a folder, sorted; of several shards only the first."""
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as e:
        raise FileError(_reason(e), where=folder) from e
    named = [p for p in files if p.suffix == ".gguf"]
    found = named or [p for p in files if has_magic(p)]
    return [p for p in found if not _later_shard(p)]


def _from_path(path: Path) -> Path:
    try:
        path.stat()
    except OSError as e:
        raise _missing(path, e) from e
    if path.is_dir():
        return _from_folder(path)
    match = SHARD.match(path.name)
    if match and int(match["index"]) > 1:
        first = path.with_name(f"{match['stem']}-00001-of-{match['count']}.gguf")
        if first.is_file():
            return first
    return path


def _from_folder(folder: Path) -> Path:
    found = models_in(folder)
    if len(found) == 1:
        return found[0]
    if not found:
        raise FileError("no GGUF file in this folder", where=folder)
    listed = ", ".join(f"{p.name} ({size(p.stat().st_size)})" for p in found[:8])
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    raise FileError(
        f"{len(found)} GGUF files in this folder",
        where=folder,
        expected="one",
        got=listed + more,
        hint=f"name one: {found[0]}",
    )


def _missing(path: Path, e: OSError) -> FileError:
    hint = None
    if isinstance(e, FileNotFoundError):
        beside = []
        if path.parent.is_dir():
            beside = [p.name for p in path.parent.iterdir()][:1000]
        near = suggestion(path.name, beside)
        hint = f"did you mean {path.parent / near}?" if near else None
    return FileError(_reason(e), where=path, hint=hint)


def _unknown_name(text: str) -> ModelError:
    if text.lower().startswith(LATER):
        return ModelError(
            "models of other hubs and tools are named by the path of their file",
            got=show(text),
            hint="gguf-runtime list shows the names that can be pulled",
        )
    known = [*entries(), *(p.stem for p in _local_files())]
    near = suggestion(text, known)
    pulled = {n for n in known if n not in entries() or entries()[n].present}
    if near is None:
        hint = "known: " + ", ".join(entries()) + "; or give the path of a GGUF file"
    elif near in pulled:
        hint = f"did you mean {near}?"
    else:
        hint = f"did you mean {near}? get it with: gguf-runtime pull {near}"
    return ModelError(f"no model and no file named {show(text)}", hint=hint)


def _local_files() -> list[Path]:
    folder = models_dir()
    return models_in(folder) if folder.is_dir() else []


def _later_shard(path: Path) -> bool:
    match = SHARD.match(path.name)
    return bool(match and int(match["index"]) > 1)


def _looks_like_path(text: str) -> bool:
    if text.lower().startswith(LATER):
        return False
    return os.sep in text or "/" in text or text.startswith(("~", ".")) or text.endswith(".gguf")


def _reason(e: OSError) -> str:
    return {
        FileNotFoundError: "no such file",
        PermissionError: "this file may not be read",
        NotADirectoryError: "no such file (a part of the path is not a folder)",
    }.get(type(e), (e.strerror or "cannot be read").lower())
