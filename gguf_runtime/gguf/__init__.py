"""GGUF files: metadata, tensors, shards, and one checked manifest of the keys that a model needs."""

from __future__ import annotations

from gguf_runtime.gguf.file import GGUFFile, open_file
from gguf_runtime.gguf.keys import REQUIRED, Keys
from gguf_runtime.gguf.manifest import Manifest, Vocabulary
from gguf_runtime.gguf.part import Notice
from gguf_runtime.gguf.rope import Rope
from gguf_runtime.gguf.strings import StringArray, scan_strings
from gguf_runtime.gguf.tensors import TensorInfo

__all__ = [
    "REQUIRED",
    "GGUFFile",
    "Keys",
    "Manifest",
    "Notice",
    "Rope",
    "StringArray",
    "TensorInfo",
    "Vocabulary",
    "open_file",
    "scan_strings",
]
