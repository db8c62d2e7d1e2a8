"""What a file is when it is no model: one sentence from its first bytes, its name, or its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["HEAD", "identify", "not_a_model", "unfinished"]

HEAD = 512  # bytes that are looked at

_OLD = "from before GGUF (2023)"
_MAGICS = (
    (b"lmgg", f"a GGML file {_OLD}"),
    (b"fmgg", f"a GGMF file {_OLD}"),
    (b"tjgg", f"a GGJT file {_OLD}"),
    (b"algg", f"a GGLA adapter {_OLD}"),
    (b"ggml", f"a GGML file {_OLD}"),
    (b"ggmf", f"a GGMF file {_OLD}"),
    (b"ggjt", f"a GGJT file {_OLD}"),
    (b"ggla", f"a GGLA adapter {_OLD}"),
    (b"FUGG", "a big-endian GGUF file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x93NUMPY", "a numpy array"),
    (b"MZqFpD", "a llamafile or another program of cosmopolitan libc"),
    (b"MZ", "a program for Windows"),
    (
        b"version https://git-lfs",
        "a git-lfs pointer: the text that stands for the file, not the file",
    ),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"BZh", "a bzip2 archive"),
    (b"%PDF", "a PDF document"),
    (b"\x89HDF", "an HDF5 file (Keras weights are stored so)"),
    (b"\x7fELF", "a program"),
    (b"<!doctype", "a web page: the download link led to a page, not to the file"),
    (b"<html", "a web page: the download link led to a page, not to the file"),
    (b"<?xml", "an XML document: probably the error message of a server"),
)

_ANOTHER = "get a GGUF file of this model, or convert it with llama.cpp's convert_hf_to_gguf.py"
_HINTS = {
    "GG": "convert the original model again, or get a GGUF file of it",
    "git-lfs": "fetch the file itself, in its folder: git lfs pull",
    "PyTorch": _ANOTHER,
    "safetensors": _ANOTHER,
    "Keras": _ANOTHER,
    "numpy": _ANOTHER,
    "archive": "unpack it and name the GGUF file in it",
    "web page": "copy the link of the file itself (on huggingface.co: /resolve/, not /blob/)",
    "server": "download it again and look at what the server said",
    "ollama manifest": "name the model as ollama does: ollama:NAME",
    "Modelfile": "name the file that stands after FROM in it",
    "JSON": "name the GGUF file; a configuration beside it is not needed",
    "text": "look into it: it may be the message of a server instead of the file",
    "llamafile": "take the GGUF file out of it: unzip FILE '*.gguf'",
    "zero": "the download was not finished: download it again",
    "empty": "the download has not begun, or failed: download it again",
    "of another kind": "name a GGUF file; gguf-runtime list --found shows those on this machine",
}

_UNFINISHED = re.compile(
    r"\.(part|partial|incomplete|crdownload|download|opdownload|aria2|!ut|!qb|tmp)$|-partial(-\d+)?$",
    re.IGNORECASE,
)

# general.type, or general.architecture where that is missing: what it is, what to do instead
_ROLES = {
    "adapter": (
        "this is an adapter (LoRA), a small change to a model, not a model",
        "adapters are not applied here: take a model that it was merged into",
    ),
    "mmproj": (
        "this is the projector of a vision or audio model, not the model",
        "name the other GGUF file beside it, the language model; it runs here with text alone",
    ),
    "imatrix": (
        "this is an importance matrix, which quantizers read, not a model",
        "name the model that was quantized with it",
    ),
    "vocab": (
        "this file has a vocabulary and no weights",
        "gguf-runtime tokenize reads it; to run, take a file of the whole model",
    ),
    "controlvector": (
        "this is a control vector, not a model",
        "control vectors are not applied here: name the model itself",
    ),
}
_ARCHITECTURES = {"clip": "mmproj", "mmproj": "mmproj", "controlvector": "controlvector"}


def identify(head: bytes, size: int) -> tuple[str, str | None]:
    """(what it is, what to do) of a file that does not start with GGUF, from its first bytes."""
    kind = _kind(head, size)
    hint = next((text for word, text in _HINTS.items() if word in kind), None)
    return kind, hint


def unfinished(name: str) -> bool:
    """Whether a file's name says that its download goes on or was given up."""
    return _UNFINISHED.search(name) is not None


def not_a_model(metadata: Mapping[str, object], n_tensors: int) -> tuple[str, str] | None:
    """(what it is, what to do) of a sound GGUF file that holds something else than a model."""
    kind = metadata.get("general.type")
    role = kind.lower() if isinstance(kind, str) else ""
    if role not in _ROLES:
        architecture = metadata.get("general.architecture")
        role = _ARCHITECTURES.get(architecture, "") if isinstance(architecture, str) else ""
    if not role and not n_tensors:
        role = "vocab"
    return _ROLES.get(role)


def _kind(head: bytes, size: int) -> str:
    if not head:
        return "an empty file"
    if not head.strip(b"\0"):
        return "a file that begins with zero bytes"
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    for magic, kind in _MAGICS:
        if head.startswith(magic) or start[: len(magic)].lower() == magic:
            return f"{kind} of PyTorch weights" if _pickled(head, kind) else kind
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "a Python pickle (PyTorch weights are stored so)"
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < size:
        return "a safetensors file"
    if start[:1] in (b"{", b"["):
        return _json(head)
    if all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        modelfile = start[:5].upper() == b"FROM " or b"\nFROM " in head
        return "a Modelfile of ollama" if modelfile else "a text file"
    return "a file of another kind"


def _pickled(head: bytes, kind: str) -> bool:
    """Whether a zip archive begins as torch.save writes it."""
    return kind == "a zip archive" and b"data.pkl" in head[:HEAD]


def _json(head: bytes) -> str:
    if b"application/vnd.ollama" in head or b"vnd.docker.distribution.manifest" in head:
        return "an ollama manifest"
    if b'"weight_map"' in head or b'"total_size"' in head:
        return "the index of a model in safetensors files"
    return "a JSON file"
