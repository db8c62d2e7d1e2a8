"""Text on its way in and out: tokenizers, the stream of an answer, stop strings, chat templates."""

from gguf_runtime.text.detokenizer import Detokenizer
from gguf_runtime.text.reply import Reply, ReplyParser, ToolCall
from gguf_runtime.text.stops import StopMatcher
from gguf_runtime.text.template import Template
from gguf_runtime.text.tokenizer import Segment, Tokenizer, Vocab

__all__ = [
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
