"""The architectures: one short file each, and the table that names them."""

from __future__ import annotations

from gguf_runtime.arch.table import ARCHITECTURES, Model, load

__all__ = ["ARCHITECTURES", "Model", "load"]
