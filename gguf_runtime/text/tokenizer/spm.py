"""SentencePiece BPE (`llama`): spaces become U+2581, characters merge by score, bytes as fallback.

Two readings. *Published* is sentencepiece's own: spaces are replaced first, then user-defined
pieces are cut out. llama.cpp's cuts user-defined pieces out of the raw text, and each cut counts
as a start.

Source: Kudo and Richardson 2018, arXiv:1808.06226. Checked: tests/golden/text.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gguf_runtime.errors import ModelError, RequestError
from gguf_runtime.text.tokenizer.index import PLAIN, Index
from gguf_runtime.text.tokenizer.merge import Merge, PairTable, merge
from gguf_runtime.text.tokenizer.special import Finder
from gguf_runtime.text.tokenizer.vocab import (
    BYTE,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Vocab,
    spans,
)

MARK = "\u2581"
_MARK = MARK.encode()
LONGEST_CACHED = 64  # characters of a word that is remembered
WORDS_CACHED = 1 << 16


class SPM:
    """Ids of texts without special tokens, and bytes of ids."""

    def __init__(self, vocab: Vocab, pre: str | None, published: bool) -> None:
        if vocab.scores is None:
            raise ModelError("the file has no scores", where="tokenizer.ggml.scores")
        if pre is not None:
            raise RequestError("this vocabulary has no pre-tokenizer", where="pre", got=pre)
        self._vocab = vocab
        self.index = Index(vocab)
        self._published = published
        self._words: dict[str, list[int]] = {}
        self.space_prefix = vocab.add_space_prefix is not False
        self.add_bos = vocab.add_bos is not False

    @cached_property
    def _pairs(self) -> _ScoredPairs:
        return _ScoredPairs(self._vocab, self.index)

    @cached_property
    def _user_defined(self) -> Finder:
        pieces = self._vocab.pieces
        ids = self._vocab.ids_of_type(USER_DEFINED) if self._published else []
        # Converters write these with plain spaces.
        return Finder((pieces[i].decode("utf-8", "replace").replace(" ", MARK), i) for i in ids)

    @cached_property
    def _glue(self) -> frozenset[str]:
        """Characters that stand before a U+2581 inside some piece; after others a word begins."""
        data, starts, ends = spans(self.index.pieces)
        plain = np.isin(self._vocab.types, PLAIN)
        a, b, c = (data[i : len(data) - 2 + i] == byte for i, byte in enumerate(_MARK))
        marks = a & b & c
        at = np.flatnonzero(marks)
        piece = np.searchsorted(starts, at, "right") - 1
        inside = (piece >= 0) & (at > starts[piece]) & (at + 3 <= ends[piece]) & plain[piece]
        doubled = (at - 3 >= starts[piece]) & marks[at - 3]
        places = zip(at[inside & ~doubled].tolist(), piece[inside & ~doubled].tolist(), strict=True)
        texts = (bytes(data[max(int(starts[p]), i - 4) : i]) for i, p in places)
        characters = (text.decode("utf-8", "ignore") for text in texts)
        return frozenset(text[-1] for text in characters if text)

    def encode(self, text: str, at_start: bool, exact: bool) -> list[int]:
        """Ids of a text between special tokens.

        `at_start`: it is first or follows one; `exact`: nothing may be replaced for good.
        """
        if not text:
            return []
        if exact and MARK in text:
            raise RequestError(
                "the text is not UTF-8 and holds U+2581, which this vocabulary keeps for spaces",
                hint="pass valid UTF-8",
            )
        text = text.replace(" ", MARK)
        if at_start and self.space_prefix:
            text = MARK + text
        ids: list[int] = []
        for part in self._user_defined.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                self._encode_words(part, ids)
        return ids

    def _encode_words(self, text: str, ids: list[int]) -> None:
        words = self._words
        for word in self._split(text):
            known = words.get(word)
            if known is None:
                known = self._word(word)
                if len(word) <= LONGEST_CACHED:
                    if len(words) >= WORDS_CACHED:
                        words.clear()
                    words[word] = known
            ids += known

    def _split(self, text: str) -> list[str]:
        """Words that no piece reaches across: a run of U+2581 and what follows it."""
        glue = self._glue | {MARK}
        words, start = [], 0
        at = text.find(MARK, 1)
        while at > 0:
            if text[at - 1] not in glue:
                words.append(text[start:at])
                start = at
            at = text.find(MARK, at + 1)
        words.append(text[start:])
        return words

    def _word(self, word: str) -> list[int]:
        index = self.index
        ids: list[int] = []
        for symbol in merge([index.symbol_of_char[c] for c in word], self._pairs):
            if symbol < index.n_vocab:
                ids.append(symbol)
            else:
                ids += self._spell(chr(symbol - index.n_vocab))
        return ids

    def _spell(self, c: str) -> list[int]:
        """A character that is no token, as byte tokens or as the unknown token."""
        tokens = [self.index.byte_tokens[b] for b in c.encode("utf-8", "surrogateescape")]
        ids = [i for i in tokens if i is not None]
        if len(ids) == len(tokens):
            return ids
        if "\udc80" <= c <= "\udcff":
            raise RequestError(
                "the text is not UTF-8 and this vocabulary has no tokens for single bytes",
                got=f"byte 0x{ord(c) - 0xDC00:02x}",
                hint="pass valid UTF-8",
            )
        if self._vocab.unk_id is None:
            raise RequestError("the vocabulary has no token for a character", got=f"U+{ord(c):04X}")
        return [self._vocab.unk_id]

    def piece(self, i: int) -> bytes:
        """The bytes of a token that is not special."""
        text = bytes(self._vocab.pieces[i])
        kind = self._vocab.types[i]
        if kind == BYTE:
            try:
                return bytes([int(text[3:5], 16)])
            except ValueError:
                return text
        return text.replace(_MARK, b" ") if kind in (NORMAL, USER_DEFINED, UNUSED) else text


class _ScoredPairs(PairTable):
    """The best score is the lowest key."""

    def __init__(self, vocab: Vocab, index: Index) -> None:
        super().__init__()
        assert vocab.scores is not None
        self._index = index
        self._scores = vocab.scores

    def look_up(self, left: int, right: int) -> Merge | None:
        index = self._index
        token = index.ids.get(index.text(left) + index.text(right))
        return None if token is None else (-float(self._scores[token]), token)
