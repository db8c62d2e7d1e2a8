"""Constraints: texts that a schema, an expression, a grammar or a list of choices allows."""

from gguf_runtime.text.constraint.api import Constraint

__all__ = ["Constraint"]
