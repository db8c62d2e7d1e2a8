"""From texts to ids: the hash maps that encode needs, built on first use.

A *symbol* is what merging works with: a token's id, or a number above them for a character or a
merged text that is no token.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock

import numpy as np

from gguf_runtime.gguf.lookup import Lookup
from gguf_runtime.text.tokenizer.vocab import (
    BYTE,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Vocab,
    numbers_of,
)

_CODE_POINTS = 0x110000
PLAIN = (NORMAL, USER_DEFINED, UNUSED)


class Index:
    """Tokens that a text can be made of: control, unknown and byte tokens are not found here."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self.pieces = vocab.pieces  # as the file spells them
        self.n_vocab = len(vocab.pieces)
        self.symbol_of_char = _SymbolOfChar(self)
        self._extra: list[bytes] = []
        self._number_of_extra: dict[bytes, int] = {}
        self._lock = Lock()

    @cached_property
    def ids(self) -> Lookup:
        """Token by text, as the file spells it; of equal texts the last."""
        return numbers_of(self.pieces, np.isin(self._vocab.types, PLAIN).astype(np.uint8))

    @cached_property
    def byte_tokens(self) -> list[int | None]:
        """(256,) the token `<0xXX>` of each byte."""
        found: list[int | None] = [None] * 256
        pieces = self.pieces
        for i in self._vocab.ids_of_type(BYTE):
            text = pieces[i]
            if len(text) == 6 and text.startswith(b"<0x") and text.endswith(b">"):
                try:
                    found[int(text[3:5], 16)] = i
                except ValueError:
                    continue
        return found

    def text(self, symbol: int) -> bytes:
        """The text of a symbol, as the file spells it."""
        if symbol < self.n_vocab:
            return self.pieces[symbol]
        if symbol < self.n_vocab + _CODE_POINTS:
            return chr(symbol - self.n_vocab).encode("utf-8", "surrogatepass")
        return self._extra[symbol - self.n_vocab - _CODE_POINTS]

    def symbol(self, text: bytes) -> int:
        """The symbol of a merged text."""
        token = self.ids.get(text)
        if token is not None:
            return token
        with self._lock:
            number = self._number_of_extra.setdefault(text, len(self._extra))
            if number == len(self._extra):
                self._extra.append(text)
        return self.n_vocab + _CODE_POINTS + number


class _SymbolOfChar(dict[str, int]):
    """The symbol of a character; filled as characters are met."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self._index = index

    def __missing__(self, c: str) -> int:
        index = self._index
        token = index.ids.get(c.encode("utf-8", "surrogatepass"))
        found = self[c] = index.n_vocab + ord(c) if token is None else token
        return found
