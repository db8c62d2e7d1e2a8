"""WordPiece (`bert`): words in lower case without accents, each the longest pieces that it begins with.

In the file the first piece of a word begins with U+2581. A word that cannot be spelled is the unknown
token. Published readings are BERT's (marks Mn go, words of more than 100 characters are unknown);
llama.cpp's takes all marks away, keeps the first letter of what a character decomposes into (of a Hangul
syllable too), and has no longest word.

Source: Devlin et al. 2019, arXiv:1810.04805. Checked: tests/golden/text/test_tokenizer_ids.py.
"""

from __future__ import annotations

import unicodedata

from gguf_runtime.errors import RequestError
from gguf_runtime.text.tokenizer.classes import MARK, PUNCT, class_of_code_point
from gguf_runtime.text.tokenizer.index import Index
from gguf_runtime.text.tokenizer.vocab import Vocab

START = "\u2581"
LONGEST = 100  # characters of a word
WORDS_CACHED = 1 << 16

_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class WordPiece:
    """Ids of texts without special tokens, and bytes of ids."""

    space_prefix = False

    def __init__(self, vocab: Vocab, pre: str | None, published: bool) -> None:
        self._vocab = vocab
        self.index = Index(vocab)
        self._published = published
        self._lower = vocab.lowercase is not False
        self._unknown = vocab.unk_id if vocab.unk_id is not None else 100
        self._longest = max(map(len, vocab.pieces), default=0)
        self._words: dict[str, list[int]] = {}
        self.add_bos = vocab.bos_id is not None
        self._kinds: dict[str, int] = {}

    def encode(self, text: str, at_start: bool, exact: bool) -> list[int]:
        """Ids of a text between special tokens; much of it is normalized away."""
        if exact:
            raise RequestError("this vocabulary takes no bytes that are not UTF-8")
        ids: list[int] = []
        for word in self._split(text):
            known = self._words.get(word)
            if known is None:
                known = self._pieces(word)
                if len(self._words) >= WORDS_CACHED:
                    self._words.clear()
                self._words[word] = known
            ids += known
        return ids

    def piece(self, i: int) -> bytes:
        """The bytes of a token; the beginning of a word is a space."""
        return bytes(self._vocab.pieces[i]).replace(START.encode(), b" ")

    def _split(self, text: str) -> list[str]:
        """Words, punctuation and ideographs apart."""
        out: list[str] = []
        for c in text:
            kind = self._kinds.get(c)
            if kind is None:
                kind = self._kinds[c] = _kind(c, self._published)
            out.append(" " if kind == 1 else f" {c} " if kind == 2 else "" if kind == 3 else c)
        clean = "".join(out)
        if self._lower:
            # Letter by letter: no final sigma.
            clean = "".join(map(str.lower, self._without_marks(clean)))
        apart = (f" {c} " if _is_punctuation(c, self._published) else c for c in clean)
        return "".join(apart).split()

    def _without_marks(self, text: str) -> str:
        if text.isascii():
            return text
        if self._published:
            text = unicodedata.normalize("NFD", text)
            return "".join(c for c in text if unicodedata.category(c) != "Mn")
        table = class_of_code_point()
        firsts = (unicodedata.normalize("NFD", c)[0] for c in text)
        return "".join(c for c in firsts if table[ord(c)] != MARK)

    def _pieces(self, word: str) -> list[int]:
        if self._published and (len(word) > LONGEST or START in word):
            return [self._unknown]
        found: list[int] = []
        ids, at = self.index.ids, 0
        while at < len(word):
            mark = START if at == 0 else ""
            for end in range(min(len(word), at + self._longest), at, -1):
                token = ids.get((mark + word[at:end]).encode())
                if token is not None:
                    found.append(token)
                    at = end
                    break
            else:
                return [self._unknown]
        return found


def _kind(c: str, published: bool) -> int:
    """1: white space, 2: an ideograph, 3: left out, 0: anything else."""
    code = ord(c)
    if c in "\t\n\r" or (not published and c.isspace() and c not in "\x1c\x1d\x1e\x1f"):
        return 1
    if code in (0, 0xFFFD) or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs"):
        return 3
    if c.isspace():
        return 1
    return 2 if any(a <= code <= b for a, b in _CJK) else 0


def _is_punctuation(c: str, published: bool) -> bool:
    if c < "\x80":
        return c.isprintable() and not c.isalnum() and c != " "
    if published and c == "\u061d":  # the published code's older table lacks it
        return False
    return bool(class_of_code_point()[ord(c)] == PUNCT)
