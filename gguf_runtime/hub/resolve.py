"""From what a person types to a file: a name of the catalog, of the hub or of ollama, a path.

A path may lead to a file, to any part of a split model, or to a folder with one model. Nothing here
uses the network.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gguf_runtime.errors import FileError, ModelError, show
from gguf_runtime.hub.catalog import entries, find
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import has_magic, models_dir

SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")
ELSEWHERE = ("hf:", "ollama:")
_HUB_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<repo>[^/\s]+/[^/\s:]+)"
    r"(?:/(?:blob|resolve|tree|raw)/[^/]+/?(?P<file>[^?#]*))?(?::(?P<quant>[\w-]+))?(?:[?#].*)?",
    re.IGNORECASE,
)
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?", re.ASCII)


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
        if text.lower().startswith(ELSEWHERE):
            return _elsewhere(text)
        refuse_address(text)
        entry = find(text)
        if entry is not None and entry.present:
            return entry.path
        local = models_dir() / f"{text}.gguf"
        if entry is None and not _looks_like_path(text) and os.path.isfile(local):
            return local
        if entry is not None and not os.path.lexists(text):
            raise ModelError(
                f"{entry.name} is not on this machine",
                got=f"no file {entry.path}"
                if not entry.path.exists()
                else f"a file of another size at {entry.path}",
                hint=f"gguf-runtime pull {entry.name}"
                f"   ({size(entry.download_bytes)}, {entry.licence})",
            )
        if entry is None and not _looks_like_path(text) and not _is_there(text):
            raise _unknown_name(text)
    return _from_path(Path(os.path.expanduser(text)))


def _elsewhere(text: str) -> Path:
    """A model of the hub's cache or of ollama's store."""
    from gguf_runtime.hub import hubcache, ollama

    if ollama.is_ollama_name(text):
        return ollama.find(text)
    name = hubcache.parse(text)
    path = hubcache.find(name)
    if path is None:
        raise hubcache.not_here(name)
    return path


def refuse_address(text: str) -> None:
    """ModelError for what was copied from the line of a browser."""
    page = _HUB_PAGE.fullmatch(text)
    if page is not None:
        want = page["file"] or page["quant"]
        raise ModelError(
            "this is the address of a page, not the name of a model",
            where=text,
            hint=f"did you mean hf:{page['repo']}" + (f":{want}?" if want else "?"),
        )
    if text.lower().startswith(("http://", "https://")):
        raise ModelError(
            "models are not read from an address",
            where=text,
            hint=f"fetch the file and name it: curl -LO '{text}'",
        )


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
    named = [p for p in files if p.suffix.lower() == ".gguf"]
    found = named or [p for p in files if has_magic(p)]
    return [p for p in found if not _later_shard(p)]


def size_on_disk(path: Path) -> int:
    """Bytes of a model's file; of a split one, of all parts that are there."""
    match = SHARD.match(path.name)
    if match is None:
        return path.stat().st_size
    count = min(int(match["count"]), 10_000)
    parts = (path.with_name(f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count))
    return sum(p.stat().st_size for p in parts if p.is_file())


def _from_path(path: Path) -> Path:
    try:
        path.stat()
    except OSError as e:
        raise _missing(path, e) from e
    except ValueError as e:  # a zero byte
        raise FileError(f"this is no path: {e}", where=path) from e
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
        raise FileError(
            "no GGUF file in this folder",
            where=folder,
            hint="gguf-runtime list --found shows the models on this machine",
        )
    listed = ", ".join(f"{p.name} ({size(size_on_disk(p))})" for p in found[:8])
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
    if isinstance(e, FileNotFoundError) and path.is_symlink():
        target = os.readlink(path)
        return FileError(
            "this link leads to nothing",
            where=path,
            expected=f"a file {target}",
            hint=f"bring that file back, or link to another: ln -sf FILE '{path}'",
        )
    if isinstance(e, FileNotFoundError):
        near = suggestion(path.name, _names_in(path.parent))
        hint = f"did you mean {path.parent / near}?" if near else None
        if hint is None and is_repository(str(path)):
            hint = f"a model of the hub has hf: before its name: gguf-runtime pull hf:{path}"
    return FileError(_reason(e), where=path, hint=hint)


def is_repository(text: str) -> bool:
    """Whether a word has the form of a repository on the hub, without its prefix."""
    return _REPO.fullmatch(text) is not None


def _is_there(text: str) -> bool:
    try:
        return os.path.lexists(text)
    except ValueError:  # a zero byte
        return True  # and _from_path says so


def _names_in(folder: Path) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [e.name for e in islice(entries, 1000)]
    return []


def _unknown_name(text: str) -> ModelError:
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
    return os.sep in text or "/" in text or text.startswith(("~", ".")) or text.endswith(".gguf")


def _reason(e: OSError) -> str:
    return {
        FileNotFoundError: "no such file",
        PermissionError: "this file may not be read",
        NotADirectoryError: "no such file (a part of the path is not a folder)",
    }.get(type(e), (e.strerror or "cannot be read").lower())
