"""Models that ollama has on this machine, used in place: `ollama:NAME[:TAG]`.

A store has `manifests/HOST/NAMESPACE/NAME/TAG` (JSON with the digests of layers) and
`blobs/sha256-DIGEST`; the layer of the model is a GGUF file. Nothing is written there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gguf_runtime.errors import FileError, ModelError, show
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.places import head

PREFIX = "ollama:"
HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
MANIFEST_BYTES = 1 << 20
NAMES = 10_000  # of a store that are looked at
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(:\d{1,5})?")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MODEL = "application/vnd.ollama.image.model"
_ADAPTER = "application/vnd.ollama.image.adapter"


def is_ollama_name(text: str) -> bool:
    """Whether a MODEL argument is one of ollama's."""
    return text.lower().startswith(PREFIX)


def stores() -> list[Path]:
    """The folders in which ollama may keep models; they need not exist."""
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return [Path(os.path.expanduser(named))]
    own = Path(os.path.expanduser("~/.ollama/models"))
    service = Path("/usr/share/ollama/.ollama/models")  # of its Linux service
    return [p for p in (own, service) if p.is_absolute()]


def find(text: str) -> Path:
    """The file of `ollama:NAME[:TAG]`.

    Raises:
        ModelError: no such model, or one that is no single GGUF file.
        FileError: a damaged manifest, or a layer that is not there.
    """
    parts = _parts(text)
    for store in stores():
        manifest = store.joinpath("manifests", *parts)
        if os.path.lexists(manifest):
            return _model_of(store, manifest, text)
    known = [name for name, _, _ in listed()]
    near = suggestion(text, known)
    raise ModelError(
        f"ollama has no model {show(text[len(PREFIX) :])} on this machine",
        where=", ".join(map(str, stores())),
        hint=f"did you mean {near}?"
        if near
        else "known: " + ", ".join(known[:8])
        if known
        else f"get it: ollama pull {text[len(PREFIX) :]}; a store elsewhere: OLLAMA_MODELS",
    )


def listed() -> Iterator[tuple[str, Path, int]]:
    """(name, file, bytes) of every model that can be used, by name."""
    for store in stores():
        for manifest, name in _manifests(store):
            with suppress(FileError, ModelError, OSError):
                path = _model_of(store, manifest, name)
                yield name, path, path.stat().st_size


def _parts(text: str) -> list[str]:
    """Folders and file name of the manifest."""
    name, _, tag = text[len(PREFIX) :].rpartition(":")
    if not name or "/" in tag:  # no tag, or the port of a host
        name, tag = text[len(PREFIX) :], TAG
    words = name.split("/")
    words = [HOST, NAMESPACE, *words] if len(words) == 1 else words
    words = [HOST, *words] if len(words) == 2 else words
    parts = [*words, tag]
    good = all(_WORD.fullmatch(w) and ".." not in w for w in parts)
    if not 4 <= len(parts) <= 5 or not good:
        raise ModelError(
            f"{show(text)} is no name of an ollama model",
            expected="ollama:NAME, ollama:NAME:TAG or ollama:USER/NAME:TAG",
            hint="gguf-runtime list --found shows those on this machine",
        )
    return parts


def _manifests(store: Path) -> Iterator[tuple[Path, str]]:
    """Manifests of a store with the names that a person types."""
    root = store / "manifests"
    left = NAMES
    folders: list[tuple[str, ...]] = [()]
    while folders:
        below = folders.pop()
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(root.joinpath(*below)), reverse=True)
        for name in names:
            left -= 1
            if left < 0:
                return
            path, here = root.joinpath(*below, name), (*below, name)
            if not _WORD.fullmatch(name):
                continue
            if len(here) < 5 and path.is_dir() and not path.is_symlink():
                folders.append(here)
            elif len(here) >= 4 and path.is_file():
                yield path, _typed(here)


def _typed(parts: tuple[str, ...]) -> str:
    *words, tag = parts
    if words[0] == HOST:
        words = words[1:]
        if words[0] == NAMESPACE and len(words) == 2:
            words = words[1:]
    return f"{PREFIX}{'/'.join(words)}" + ("" if tag == TAG else f":{tag}")


def _model_of(store: Path, manifest: Path, name: str) -> Path:
    layers = _layers(manifest)
    kinds = [layer.get("mediaType") for layer in layers]
    models = [layer for layer, kind in zip(layers, kinds, strict=True) if kind == _MODEL]
    if _ADAPTER in kinds:
        raise ModelError(
            "this model of ollama is a model and an adapter (LoRA), and adapters are not applied",
            where=name,
            hint="take a model that the adapter was merged into",
        )
    if len(models) != 1:
        raise ModelError(
            "this model of ollama is not one GGUF file",
            where=name,
            expected="one layer with a model",
            got=f"{len(models):,}",
            hint="get a GGUF file of this model: gguf-runtime pull hf:ORG/NAME",
        )
    digest = models[0].get("digest")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise _damaged(manifest, f"a digest, got {show(digest)}")
    for form in ("sha256-", "sha256:"):  # the second one is that of old versions
        blob = store / "blobs" / (form + match[1])
        if blob.is_file():
            return blob
    raise FileError(
        "a layer of this model is not there",
        where=name,
        expected=f"a file {store / 'blobs' / ('sha256-' + match[1])}",
        hint=f"ollama pull {name[len(PREFIX) :]}",
    )


def _layers(manifest: Path) -> list[dict[str, Any]]:
    raw = head(manifest, MANIFEST_BYTES + 1)
    if len(raw) > MANIFEST_BYTES or not raw:
        raise _damaged(manifest, f"1 to {MANIFEST_BYTES:,} bytes of JSON")
    try:
        facts = json.loads(raw)
        layers = facts["layers"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise _damaged(manifest, 'JSON with "layers"') from None
    if not isinstance(layers, list) or not all(isinstance(x, dict) for x in layers):
        raise _damaged(manifest, "a list of layers")
    return layers


def _damaged(manifest: Path, expected: str) -> FileError:
    return FileError(
        "this manifest of ollama is damaged or cannot be read",
        where=manifest,
        expected=expected,
        hint="pull the model again with ollama",
    )
