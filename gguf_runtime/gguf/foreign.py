"""What a file is when it is no GGUF file: one sentence from its first bytes."""

from __future__ import annotations

__all__ = ["HEAD", "identify"]

HEAD = 512  # bytes that are looked at

_MAGICS = (
    (b"lmgg", "a GGML file from before GGUF (2023)"),
    (b"fmgg", "a GGMF file from before GGUF (2023)"),
    (b"tjgg", "a GGJT file from before GGUF (2023)"),
    (b"algg", "a GGLA adapter from before GGUF (2023)"),
    (b"ggml", "a GGML file from before GGUF (2023)"),
    (b"ggmf", "a GGMF file from before GGUF (2023)"),
    (b"ggjt", "a GGJT file from before GGUF (2023)"),
    (b"ggla", "a GGLA adapter from before GGUF (2023)"),
    (b"FUGG", "a big-endian GGUF file"),
    (b"PK\x03\x04", "a zip archive (PyTorch weights are stored so)"),
    (b"\x80\x02", "a Python pickle (PyTorch weights are stored so)"),
    (b"\x80\x04", "a Python pickle"),
    (
        b"version https://git-lfs",
        "a git-lfs pointer: the text that stands for the file, not the file",
    ),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"BZh", "a bzip2 archive"),
    (b"%PDF", "a PDF document"),
    (b"\x89HDF", "an HDF5 file (Keras weights are stored so)"),
    (b"\x7fELF", "a program"),
    (b"<!doctype", "a web page: the download link led to a page, not to the file"),
    (b"<html", "a web page: the download link led to a page, not to the file"),
    (b"<?xml", "an XML document: probably the error message of a server"),
)

_HINTS = {
    "GG": "convert the original model again, or get a GGUF file of it",
    "git-lfs": "git lfs pull",
    "archive": "unpack it first",
    "web page": "copy the link of the file itself",
    "PyTorch": "get a GGUF file of this model, or convert it with llama.cpp's converter",
    "safetensors": "get a GGUF file of this model, or convert it with llama.cpp's converter",
    "zero": "the download was not finished: download it again",
}


def identify(head: bytes, size: int) -> tuple[str, str | None]:
    """(what it is, what to do) of a file that does not start with GGUF, from its first bytes."""
    kind = _kind(head, size)
    hint = next((text for word, text in _HINTS.items() if word in kind), None)
    return kind, hint


def _kind(head: bytes, size: int) -> str:
    if not head:
        return "an empty file"
    if not head.strip(b"\0"):
        return "a file that begins with zero bytes"
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    for magic, kind in _MAGICS:
        if head.startswith(magic) or start[: len(magic)].lower() == magic:
            return kind
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < size:
        return "a safetensors file"
    if start[:1] in (b"{", b"["):
        return "a JSON file"
    if all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        return "a text file"
    return "a file of another kind"
