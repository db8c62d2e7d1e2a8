"""Text on its way in and out: tokenizers, the stream of an answer, stop strings, chat templates, constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gguf_runtime.text.detokenizer import Detokenizer
from gguf_runtime.text.reply import Reply, ReplyParser, ToolCall
from gguf_runtime.text.stops import StopMatcher
from gguf_runtime.text.template import Template
from gguf_runtime.text.tokenizer import Segment, Tokenizer, Vocab

if TYPE_CHECKING:
    from gguf_runtime.text.constraint import Constraint

__all__ = [
    "Constraint",
    "Detokenizer",
    "Reply",
    "ReplyParser",
    "Segment",
    "StopMatcher",
    "Template",
    "Tokenizer",
    "ToolCall",
    "Vocab",
]


def __getattr__(name: str) -> Any:
    """Constraints are imported where they are used: the start of the program does without."""
    if name == "Constraint":
        from gguf_runtime.text.constraint import Constraint

        return Constraint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
