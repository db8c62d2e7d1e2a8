"""Reading replies: content, reasoning and tool calls, for the tags of many families of models."""

from gguf_runtime.text.reply.calls import ToolCall
from gguf_runtime.text.reply.formats import FAMILIES, Format
from gguf_runtime.text.reply.parser import Event, Reply, ReplyParser

__all__ = ["FAMILIES", "Event", "Format", "Reply", "ReplyParser", "ToolCall"]
