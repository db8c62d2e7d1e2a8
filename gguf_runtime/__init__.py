"""A local, CPU-first runtime for GGUF models.

    from gguf_runtime import Model

    with Model("smollm2") as m:
        print(m.complete("Why is the sky blue?", max_tokens=64).text)

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gguf_runtime.engine.aio import AsyncStream
    from gguf_runtime.engine.batch import Batch
    from gguf_runtime.engine.chat import Chat
    from gguf_runtime.engine.completion import Completion, Notice, Timings, Usage
    from gguf_runtime.engine.info import Info
    from gguf_runtime.engine.model import Model
    from gguf_runtime.engine.session import Session
    from gguf_runtime.engine.stream import Stream
    from gguf_runtime.errors import (
        DownloadError,
        FileError,
        GGUFRuntimeError,
        MachineError,
        ModelError,
        RequestError,
    )

_WHERE = {
    "AsyncStream": "engine.aio",
    "Batch": "engine.batch",
    "Chat": "engine.chat",
    "Completion": "engine.completion",
    "DownloadError": "errors",
    "FileError": "errors",
    "GGUFRuntimeError": "errors",
    "Info": "engine.info",
    "MachineError": "errors",
    "Model": "engine.model",
    "ModelError": "errors",
    "Notice": "engine.completion",
    "RequestError": "errors",
    "Session": "engine.session",
    "Stream": "engine.stream",
    "Timings": "engine.completion",
    "Usage": "engine.completion",
}

__all__ = [
    "AsyncStream",
    "Batch",
    "Chat",
    "Completion",
    "DownloadError",
    "FileError",
    "GGUFRuntimeError",
    "Info",
    "MachineError",
    "Model",
    "ModelError",
    "Notice",
    "RequestError",
    "Session",
    "Stream",
    "Timings",
    "Usage",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'gguf_runtime' has no attribute {name!r}")
    return getattr(import_module(f"gguf_runtime.{where}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
