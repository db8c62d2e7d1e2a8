"""SentencePiece unigram (`t5`): the likeliest pieces of each word, after the file's own normalization.

A text is normalized by the character map in the file, spaces become U+2581, and the pieces are chosen
whose scores sum up to most. What no piece spells is the unknown token, once for a run.

Source: Kudo 2018, arXiv:1804.10959. Checked: tests/golden/text/test_tokenizer_ids.py.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gguf_runtime.errors import ModelError, RequestError
from gguf_runtime.text.tokenizer.index import Index
from gguf_runtime.text.tokenizer.vocab import NORMAL, UNUSED, USER_DEFINED, Vocab

MARK = "\u2581"
UNKNOWN_PENALTY = 10.0
LONGEST_CACHED = 64
WORDS_CACHED = 1 << 16


class Unigram:
    """Ids of texts without special tokens, and bytes of ids."""

    def __init__(self, vocab: Vocab, pre: str | None, published: bool) -> None:
        if vocab.scores is None:
            raise ModelError("the file has no scores", where="tokenizer.ggml.scores")
        self._vocab = vocab
        self.index = Index(vocab)
        self._unknown = vocab.unk_id if vocab.unk_id is not None else 2
        self._squeeze = bool(vocab.remove_extra_whitespaces)
        self.space_prefix = bool(vocab.add_space_prefix)
        self.add_bos = bool(vocab.add_bos)
        self._words: dict[str, list[int]] = {}
        self._map = CharacterMap(vocab.charsmap)

    @cached_property
    def _pieces(self) -> tuple[dict[str, tuple[int, float]], dict[str, int], float, bool]:
        """Id and score by text, the longest by two characters, the unknown's score, whether words can
        be cut apart."""
        assert self._vocab.scores is not None
        found: dict[str, tuple[int, float]] = {}
        ids = self._vocab.ids_of_type(NORMAL, USER_DEFINED, UNUSED)
        for i in ids:
            text = bytes(self._vocab.pieces[i]).decode("utf-8", "replace")
            score = 0.0 if self._vocab.types[i] == USER_DEFINED else float(self._vocab.scores[i])
            found.setdefault(text, (i, score))
        normal = self._vocab.scores[self._vocab.ids_of_type(NORMAL)]
        lowest = float(normal.min()) if len(normal) else 0.0
        whole = any(MARK in text[1:] for text in found)
        longest: dict[str, int] = {}
        for text in found:
            if len(text) > longest.get(text[:2], 1):
                longest[text[:2]] = len(text)
        return found, longest, lowest - UNKNOWN_PENALTY, not whole

    def encode(self, text: str, at_start: bool, exact: bool) -> list[int]:
        """Ids of a text between special tokens."""
        if exact:
            raise RequestError("this vocabulary takes no bytes that are not UTF-8")
        text = self._normalized(text)
        parts = text.split(MARK) if self._pieces[3] else [text]
        ids: list[int] = []
        for k, part in enumerate(parts):
            word = MARK + part if k else part
            if not word:
                continue
            known = self._words.get(word)
            if known is None:
                known = self._best(word)
                if len(word) <= LONGEST_CACHED:
                    if len(self._words) >= WORDS_CACHED:
                        self._words.clear()
                    self._words[word] = known
            for i in known:
                if i != self._unknown or ids[-1:] != [i]:
                    ids.append(i)
        return ids

    def piece(self, i: int) -> bytes:
        """The bytes of a token."""
        return bytes(self._vocab.pieces[i]).replace(MARK.encode(), b" ")

    def _normalized(self, text: str) -> str:
        text = self._map.apply(text)
        if self._squeeze:
            text = " ".join(part for part in text.split(" ") if part)
        if text and self.space_prefix:
            text = " " + text
        return text.replace(" ", MARK)

    def _best(self, word: str) -> list[int]:
        """The pieces whose scores sum up to most."""
        pieces, longest, unknown, _ = self._pieces
        n = len(word)
        score = [float("-inf")] * (n + 1)
        score[0] = 0.0
        came: list[tuple[int, int]] = [(0, 0)] * (n + 1)
        for start in range(n):
            base = score[start]
            single = False
            most = longest.get(word[start : start + 2], 1)
            for end in range(start + 1, min(n, start + most) + 1):
                found = pieces.get(word[start:end])
                if found is None:
                    continue
                single = single or end == start + 1
                total = base + found[1]
                if total > score[end]:
                    score[end], came[end] = total, (start, found[0])
            if not single and base + unknown > score[start + 1]:
                score[start + 1], came[start + 1] = base + unknown, (start, self._unknown)
        out: list[int] = []
        at = n
        while at:
            at, token = came[at]
            if token != self._unknown or out[-1:] != [token]:
                out.append(token)
        return out[::-1]


class CharacterMap:
    """The file's normalization: a double-array trie of what is replaced, and the replacements.

    The longest match at each place is replaced; what matches nothing stays.
    """

    def __init__(self, blob: bytes | None) -> None:
        self._units: list[int] = []
        self._texts = b""
        self._known: dict[str, str] = {}
        if blob:
            size = int.from_bytes(blob[:4], "little")
            if size % 4 or size + 4 > len(blob):
                raise ModelError(
                    "the character map is damaged", where="tokenizer.ggml.precompiled_charsmap"
                )
            self._units = np.frombuffer(blob, "<u4", size // 4, 4).tolist()
            self._texts = blob[4 + size :]

    def apply(self, text: str) -> str:
        """The text, normalized."""
        if not self._units:
            return text
        data = text.encode("utf-8", "replace")
        out: list[bytes] = []
        at, n = 0, len(data)
        while at < n:
            length, replaced = self._match(data, at)
            if length:
                out.append(replaced)
                at += length
            else:
                lead = data[at]
                size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                out.append(data[at : at + size])
                at += size
        return b"".join(out).decode("utf-8", "replace")

    def _match(self, data: bytes, start: int) -> tuple[int, bytes]:
        """Length of the longest key at a place, and what stands for it."""
        units = self._units
        node = _offset(units[0])
        found = (0, b"")
        for at in range(start, len(data)):
            c = data[at]
            node ^= c
            if node >= len(units):
                break
            unit = units[node]
            if unit & 0x800000FF != c:
                break
            node ^= _offset(unit)
            if unit >> 8 & 1:
                value = units[node] & 0x7FFFFFFF
                end = self._texts.find(b"\0", value)
                found = at + 1 - start, self._texts[value:end]
        return found


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)
