"""The facts of a model file as plain data, for `inspect --json` and for the words of `report`.

Works for every file that opens, whatever its architecture and types: what the manifest refuses
becomes an entry under `problems`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gguf_runtime.errors import ModelError
from gguf_runtime.gguf.file import GGUFFile
from gguf_runtime.gguf.foreign import not_a_model
from gguf_runtime.gguf.ggml_types import FILE_TYPES, GGML_TYPES
from gguf_runtime.gguf.manifest import Manifest
from gguf_runtime.gguf.strings import StringArray
from gguf_runtime.gguf.values import Value

__all__ = ["SCHEMA_VERSION", "facts", "unsupported"]

SCHEMA_VERSION = 1
WHOLE = 1024  # longer arrays are given by their length and beginning
BEGINNING = 8
GENERAL = ("name", "basename", "finetune", "size_label", "license", "organization", "version")


def facts(
    file: GGUFFile,
    *,
    supported: Collection[str] | None = None,
    refusals: Sequence[str] = (),
    kv: bool = False,
    tensors: bool = False,
) -> dict[str, Any]:
    """What `inspect --json` prints.

    Args:
        file: an open file.
        supported: names of the architectures that can be run; None leaves that question out.
        refusals: further reasons why the file cannot be run, from whoever knows architectures.
        kv: add all metadata.
        tensors: add the table of tensors.
    """
    problems: list[str] = []
    manifest = None
    try:
        manifest = file.manifest()
    except ModelError as error:
        problems.append("; ".join(error.lines()[:2]))
    architecture = file.metadata.get("general.architecture")
    file_type = file.metadata.get("general.file_type")
    weights = sum(t.n_elements for t in file.tensors.values())
    size = sum(t.size_bytes for t in file.tensors.values())
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "path": os.fspath(file.path),
        "parts": [p.name for p in file.paths],
        "size_bytes": file.size_bytes,
        "version": file.version,
        "byte_order": "little" if file.order == "<" else "big",
        "alignment": file.alignment,
        "fingerprint": file.fingerprint(),
        "architecture": architecture if isinstance(architecture, str) else None,
        "general": {k: _plain(file.metadata.get(f"general.{k}")) for k in GENERAL},
        "file_type": FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        "n_tensors": len(file.tensors),
        "n_params": weights,
        "bits_per_weight": round(8 * size / weights, 4) if weights else None,
        "model": _model(manifest),
        "rope": _rope(file, manifest),
        "tokenizer": _tokenizer(file, manifest),
        "types": _types(file),
        "notices": [asdict(n) for n in file.notices],
        "problems": problems,
    }
    reasons = [*unsupported(file, supported), *refusals]
    result["runnable"] = None if supported is None else not reasons and not problems
    result["unsupported"] = reasons
    if kv:
        result["metadata"] = {_text(k): _entry(file, k) for k in file.metadata}
    if tensors:
        result["tensors"] = [
            {
                "name": _text(t.name),
                "type": t.type_name,
                "shape": list(t.shape),
                "part": t.shard + 1,
                "offset": t.offset,
                "size_bytes": t.size_bytes,
            }
            for t in file.tensors.values()
        ]
    return result


def unsupported(file: GGUFFile, supported: Collection[str] | None) -> list[str]:
    """Why this program cannot run the file: its architecture, byte order, types of tensors."""
    reasons = []
    other = not_a_model(file.metadata, len(file.tensors))
    if other is not None:
        return [f"{other[0]}; {other[1]}"]
    architecture = file.metadata.get("general.architecture")
    if supported is not None and architecture not in supported:
        name = _text(architecture) if isinstance(architecture, str | bytes) else "none"
        reasons.append(f"architecture {name} (supported: {', '.join(sorted(supported))})")
    if file.order == ">":
        reasons.append("big-endian byte order")
    lacking: dict[int, str] = {}
    for t in file.tensors.values():
        if t.n_elements and t.qtype is None:
            lacking.setdefault(t.type_id, f"tensor type {t.type_name} in {_text(t.name)}")
    return reasons + list(lacking.values())


def _rope(file: GGUFFile, manifest: Manifest | None) -> dict[str, Any] | None:
    """Rotary positions as they take effect; None where the file has no such key."""
    if manifest is None or not any(manifest.n_head):
        return None
    prefix = f"{manifest.architecture}.rope."
    if not any(key.startswith(prefix) for key in file.metadata):
        return None
    return asdict(manifest.rope) | {"factors": list(manifest.rope.factors)}


def _model(manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    fields = asdict(manifest)
    for key in ("architecture", "name", "size_label", "license", "file_type", "rope"):
        del fields[key]
    for key in ("vocabulary", "n_params", "bits_per_weight"):
        del fields[key]
    return {key: _per_layer(value) for key, value in fields.items()}


def _per_layer(value: object) -> object:
    """A tuple with one number per layer, as that number where all are equal."""
    if isinstance(value, tuple):
        return value[0] if len(set(value)) == 1 else list(value) or None
    return value


def _tokenizer(file: GGUFFile, manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None or manifest.vocabulary is None:
        return None
    result = asdict(manifest.vocabulary)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    pieces = {}
    for name in ("bos", "eos", "eot", "unknown", "padding"):
        i = result[f"{name}_id"]
        if i is not None and isinstance(tokens, StringArray):
            pieces[name] = _text(tokens[i])
    template = file.metadata.get("tokenizer.chat_template")
    result["template_characters"] = len(template) if isinstance(template, str) else None
    return result | {"pieces": pieces}


def _types(file: GGUFFile) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for t in file.tensors.values():
        row = rows.setdefault(
            t.type_id,
            {
                "type": t.type_name,
                "id": t.type_id,
                "tensors": 0,
                "weights": 0,
                "size_bytes": 0,
                "bits_per_weight": GGML_TYPES[t.type_id].bits if t.sized else None,
                "runnable": t.qtype is not None,
            },
        )
        row["tensors"] += 1
        row["weights"] += t.n_elements
        row["size_bytes"] += t.size_bytes
    return sorted(rows.values(), key=lambda row: (-row["size_bytes"], row["id"]))


def _entry(file: GGUFFile, key: str) -> dict[str, Any]:
    value = file.metadata[key]
    entry: dict[str, Any] = {"kind": file.metadata.kind(key)}
    if isinstance(value, np.ndarray | StringArray | tuple):
        entry["length"] = len(value)
        if len(value) > WHOLE:
            entry["cut"] = True
            return entry | {"value": [_plain(v) for v in value[:BEGINNING]]}
    return entry | {"value": _plain(value)}


def _plain(value: Value | None) -> Any:
    """A value as JSON knows it; what JSON lacks becomes text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str | bytes):
        return _text(value)
    if isinstance(value, memoryview):
        return _text(bytes(value[:WHOLE])) + "…"
    if isinstance(value, np.ndarray):
        value = tuple(value.tolist())
    if isinstance(value, StringArray | tuple):
        return [_plain(v) for v in value]
    return value


def _text(text: str | bytes) -> str:
    r"""Text that can be printed and encoded: bytes that are no UTF-8 as \xNN."""
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return raw.decode("utf-8", "backslashreplace")
