"""Texts to token ids and back, as the vocabulary in a GGUF file says."""

from gguf_runtime.text.tokenizer.api import Segment, Tokenizer
from gguf_runtime.text.tokenizer.vocab import Vocab

__all__ = ["Segment", "Tokenizer", "Vocab"]
