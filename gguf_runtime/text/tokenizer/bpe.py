"""Byte-level BPE: words by the pre-tokenizer, bytes as 256 letters, merges by rank.

Lossless for any bytes whose letters are tokens: bytes that are no UTF-8 go through as single
characters (Python's surrogate escapes). A letter without a token is dropped, as the published
tokenizers do; for bytes that are no UTF-8 that is refused instead.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners"; GPT-2's
encoder for the alphabet. Checked: tests/golden/text/test_tokenizer_ids.py.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property

import numpy as np

from gguf_runtime.errors import ModelError, RequestError, show
from gguf_runtime.text.tokenizer import pretokenizers
from gguf_runtime.text.tokenizer.classes import MARK, class_of_code_point, code_points, run_ends
from gguf_runtime.text.tokenizer.index import Index
from gguf_runtime.text.tokenizer.merge import Merge, PairTable, merge
from gguf_runtime.text.tokenizer.vocab import NORMAL, Vocab, numbers_of

LONGEST_CACHED = 64  # characters of a word that is remembered
WORDS_CACHED = 1 << 16
MARKS_NORMALIZED = 4096  # longer runs of marks are left alone: sorting them is quadratic


def _alphabet() -> tuple[str, dict[int, int]]:
    """Letter of each byte, and byte of each letter's code point."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    letters = {b: b for b in plain} | {b: 256 + i for i, b in enumerate(rest)}
    return "".join(chr(letters[b]) for b in range(256)), {c: b for b, c in letters.items()}


LETTERS, BYTE_OF_LETTER = _alphabet()
_TO_LETTERS = dict(enumerate(LETTERS))


class BPE:
    """Ids of texts without special tokens, and bytes of ids."""

    space_prefix = False

    def __init__(self, vocab: Vocab, pre: str | None, published: bool) -> None:
        self._vocab = vocab
        self.index = Index(vocab)
        self._pre = pretokenizers.get(pre or vocab.pre, published)
        self._nfc = self._pre.nfc and published
        self._words: dict[str, list[int]] = {}
        if vocab.merges is None:
            raise ModelError("the file has no merges", where="tokenizer.ggml.merges")
        self.add_bos = self._pre.add_bos if vocab.add_bos is None else vocab.add_bos

    @cached_property
    def _pairs(self) -> _RankedPairs:
        return _RankedPairs(self._vocab, self.index)

    def encode(self, text: str, at_start: bool, exact: bool) -> list[int]:
        """Ids of a text between special tokens; `exact`: nothing may be normalized or dropped."""
        if self._nfc and not exact:
            text = nfc(text)
        ids: list[int] = []
        words = {} if exact else self._words
        for word in self._pre.words(text):
            known = words.get(word)
            if known is None:
                known = self._word(word, exact)
                if len(word) <= LONGEST_CACHED:
                    if len(words) >= WORDS_CACHED:
                        words.clear()
                    words[word] = known
            ids += known
        return ids

    def _word(self, word: str, exact: bool) -> list[int]:
        letters = word.encode("utf-8", "surrogateescape").decode("latin-1").translate(_TO_LETTERS)
        index = self.index
        if self._pre.ignore_merges and (whole := index.ids.get(letters.encode())) is not None:
            return [whole]
        ids = []
        for symbol in merge([index.symbol_of_char[c] for c in letters], self._pairs):
            if symbol < index.n_vocab:
                ids.append(symbol)
                continue
            # No token: spelled letter by letter.
            for c in index.text(symbol).decode():
                token = index.symbol_of_char[c]
                if token < index.n_vocab:
                    ids.append(token)
                elif exact:
                    raise RequestError(
                        "the text is not UTF-8 and this vocabulary cannot spell its bytes",
                        got=f"byte 0x{BYTE_OF_LETTER[ord(c)]:02x}",
                        hint="pass valid UTF-8",
                    )
        if exact and b"".join(map(self.piece, ids)) != word.encode("utf-8", "surrogateescape"):
            raise RequestError(
                "the text is not UTF-8 and this vocabulary cannot spell its bytes",
                got=show(word.encode("utf-8", "surrogateescape")),
                hint="pass valid UTF-8",
            )
        return ids

    def piece(self, i: int) -> bytes:
        """The bytes of a token that is not special."""
        text = self._vocab.pieces[i]
        if self._vocab.types[i] != NORMAL:
            return bytes(text)
        chars = text.decode("utf-8", "surrogateescape")
        try:
            return bytes(map(BYTE_OF_LETTER.__getitem__, map(ord, chars)))
        except KeyError:
            return bytes(text)  # added to the vocabulary outside the alphabet


class _RankedPairs(PairTable):
    """Rank of a pair, from the file's lines `left right`."""

    def __init__(self, vocab: Vocab, index: Index) -> None:
        super().__init__()
        assert vocab.merges is not None
        self._index = index
        # A line is its own key: the alphabet has no space, so joining two pieces by one gives it.
        # Of a line that comes twice the first counts.
        self._ranks = numbers_of(vocab.merges, last=False)

    def look_up(self, left: int, right: int) -> Merge | None:
        index = self._index
        a, b = index.text(left), index.text(right)
        rank = self._ranks.get(b"%b %b" % (a, b))
        return None if rank is None else (rank, index.symbol(a + b))


def nfc(text: str) -> str:
    """Normalization form C, but for absurdly long runs of marks, in linear time."""
    if len(text) <= MARKS_NORMALIZED or text.isascii():
        return unicodedata.normalize("NFC", text)
    classes = class_of_code_point()[code_points(text)]
    is_mark = (classes == MARK).astype(np.uint8)
    ends = run_ends(is_mark)
    starts = np.flatnonzero(np.diff(is_mark, prepend=0) == 1)
    out, a = [], 0
    for start in starts[ends[starts] - starts > MARKS_NORMALIZED].tolist():
        out += [unicodedata.normalize("NFC", text[a:start]), text[start : ends[start]]]
        a = int(ends[start])
    return "".join([*out, unicodedata.normalize("NFC", text[a:])])
