"""RWKV's tokenizer: the longest token that the bytes go on with, again and again.

Tokens are written in the file with escapes (`\\n`, `\\xff`), as Python shows bytes. There is no golden
file: tests compare with the rule itself.
"""

from __future__ import annotations

import re
from functools import cached_property

from gguf_runtime.errors import RequestError
from gguf_runtime.text.tokenizer.index import Index
from gguf_runtime.text.tokenizer.vocab import NORMAL, Vocab

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SHORT = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RWKV:
    """Ids of texts without special tokens, and bytes of ids."""

    space_prefix = False

    def __init__(self, vocab: Vocab, pre: str | None, published: bool) -> None:
        if pre is not None:
            raise RequestError("this vocabulary has no pre-tokenizer", where="pre", got=pre)
        self._vocab = vocab
        self.index = Index(vocab)
        self.add_bos = bool(vocab.add_bos)

    @cached_property
    def _by_bytes(self) -> tuple[dict[bytes, int], dict[bytes, tuple[int, ...]]]:
        """Token by its bytes, and by their first two the lengths that there are, longest first."""
        ids = {self.piece(i): i for i in reversed(self._vocab.ids_of_type(NORMAL))}
        lengths: dict[bytes, set[int]] = {}
        for text in ids:
            if text:
                lengths.setdefault(text[:2], set()).add(len(text))
        return ids, {k: tuple(sorted(v, reverse=True)) for k, v in lengths.items()}

    def encode(self, text: str, at_start: bool, exact: bool) -> list[int]:
        """Ids of a text between special tokens; bytes without a token are refused or left out."""
        data = text.encode("utf-8", "surrogateescape")
        ids, lengths = self._by_bytes
        out, at = [], 0
        while at < len(data):
            start = data[at : at + 2]
            for n in (*lengths.get(start, ()), 1):
                token = ids.get(data[at : at + n])
                if token is not None:
                    out.append(token)
                    at += n
                    break
            else:
                if exact:
                    raise RequestError(
                        "this vocabulary cannot spell a byte", got=f"byte 0x{data[at]:02x}"
                    )
                at += 1
        return out

    def piece(self, i: int) -> bytes:
        """The bytes of a token that is not special."""
        raw = bytes(self._vocab.pieces[i])
        return raw if b"\\" not in raw else _ESCAPE.sub(_unescaped, raw)


def _unescaped(match: re.Match[bytes]) -> bytes:
    word = match[1]
    if len(word) == 3:
        return bytes([int(word[1:], 16)])
    return _SHORT.get(word, word)
