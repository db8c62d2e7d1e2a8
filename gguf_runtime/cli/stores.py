"""What this program keeps in its cache folder, with sizes, and how to clear it: for `doctor`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from gguf_runtime.hub.resolve import size


def kernels() -> dict[str, Any]:
    """Compiled kernels of this version, and folders that other versions left."""
    from quant.objects import Store, default_base

    base = default_base()
    folder = Store(base, lambda code, message: None).folder
    others = []
    if base is not None and os.path.isdir(base):
        with os.scandir(base) as listed:
            names = sorted(f.path for f in listed if f.name.startswith("kernels-") and f.is_dir())
        others = [{"folder": p, "size_bytes": _objects(p)[1]} for p in names if p != folder]
    n, n_bytes = _objects(folder)
    return {
        "folder": folder,
        "objects": n,
        "size_bytes": n_bytes,
        "writable": folder is not None and _writable(folder),
        "others": others,
        "clear": _clear(folder) if n else None,
    }


def packs() -> dict[str, Any]:
    """Files of packed weights that `--pack-cache` left."""
    from gguf_runtime.engine import pack_cache

    folder = pack_cache.folder()
    files = [
        {"path": str(path), "size_bytes": n, "model": model}
        for path, n, model in pack_cache.listed()
    ]
    return {
        "folder": None if folder is None else str(folder),
        "files": files,
        "size_bytes": sum(f["size_bytes"] for f in files),
        "clear": _clear(str(folder)) if files else None,
    }


def words(kernels: dict[str, Any], packs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines of `doctor`."""
    state = "" if kernels["writable"] else ", not writable: kernels are compiled on every start"
    n, n_bytes = kernels["objects"], size(kernels["size_bytes"])
    yield "kernels", f"{n} compiled, {n_bytes}, in {kernels['folder']}{state}"
    for other in kernels["others"]:
        yield "", f"of another version: {size(other['size_bytes'])}; {_clear(other['folder'])}"
    if kernels["clear"]:
        yield "", f"to clear: {kernels['clear']}"
    if packs["files"]:
        yield "packs", f"{size(packs['size_bytes'])} in {packs['folder']}, from --pack-cache"
        for f in packs["files"]:
            yield "", f"{f['model']}: {size(f['size_bytes'])}, {os.path.basename(f['path'])}"
        yield "", f"to clear: {packs['clear']}"


def _objects(folder: str | None) -> tuple[int, int]:
    """(number, bytes) of the objects in a folder."""
    n = total = 0
    if folder is not None and os.path.isdir(folder):
        with os.scandir(folder) as listed:
            for f in listed:
                with contextlib.suppress(OSError):  # another process may tidy up
                    if f.name.endswith(".o"):
                        n, total = n + 1, total + f.stat().st_size
    return n, total


def _clear(folder: str | None) -> str:
    """The command that removes a folder; what is in it is made again when it is wanted."""
    import shlex

    command = "rmdir /s" if os.name == "nt" else "rm -r"
    return f"{command} {shlex.quote(folder or '')}"


def _writable(folder: str) -> bool:
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)
