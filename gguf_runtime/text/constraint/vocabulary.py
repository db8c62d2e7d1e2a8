"""What llguidance has to know of a vocabulary: the bytes of every token, and which may be written.

Built once for a tokenizer and kept with it: 0.6 s for 262,144 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from gguf_runtime.text.tokenizer import Tokenizer

U8 = NDArray[np.uint8]

# Tokens that are whole within a JSON string are looked at once for all strings: 10 times faster
# masks; the other sets that llguidance proposes cost 0.5 s of start and gave nothing measurable.
SLICES = [r'[^"\\\x00-\x1F\x7F]+']
BYTE_END = 256


class Vocabulary:
    """A vocabulary ready for masks.

    Attributes:
        n: tokens.
        end_ids: those that end a text.
        writable: bits, little-endian in each byte, of tokens that a text may hold at all: no
            control tokens, no empty ones and none that begins with NUL.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        controls: Sequence[int],
        end_ids: Sequence[int],
        encode: Any,
        slices: list[str],
    ) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        self.n = len(pieces)
        self.end_ids = tuple(end_ids)
        self.tokenizer: LLTokenizer = LLTokenizer(
            TokenizerWrapper(_Wrapped(pieces, controls, end_ids, encode)),
            n_vocab=self.n,
            eos_token=list(end_ids),
            slices=slices,
        )
        allowed = np.fromiter((bool(p) and p[0] != 0 for p in pieces), bool, self.n)
        allowed[list(controls)] = False
        allowed[list(end_ids)] = False
        self.writable: U8 = np.packbits(allowed, bitorder="little")

    def spell(self, text: bytes) -> list[int]:
        """Tokens whose bytes are the text, as a tokenizer would choose them behind other text."""
        found: list[int] = self.tokenizer.tokenize_bytes(text)
        return found


class _Wrapped:
    """The attributes that llguidance reads."""

    bos_token_id = None

    def __init__(
        self, pieces: Sequence[bytes], controls: Sequence[int], end_ids: Sequence[int], encode: Any
    ) -> None:
        self.tokens = pieces
        self.special_token_ids = sorted({*controls, *end_ids})
        self.eos_token_id = end_ids[0]
        self._encode = encode

    def __call__(self, text: bytes | str) -> Any:
        return self._encode(text)


class _Speller:
    """Tokens of a text that stands behind other text: no space is put before it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = ref(tokenizer)

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        tokenizer = self._tokenizer()
        assert tokenizer is not None, "the tokenizer is kept by whoever asks"
        ids: list[int] = []
        for lead in (b"\n", b"x", b")"):  # one of them merges with nothing that follows
            ids = tokenizer.encode(lead + data)
            pieces = [tokenizer.piece(i, special=True) for i in ids]
            for k in range(len(ids)):
                if b"".join(pieces[: k + 1]).lstrip(b" ") == lead:
                    if b"".join(pieces[k + 1 :]) == data:
                        return ids[k + 1 :]
                    break
        return ids


_known: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, built at the first call."""
    found = _known.get(tokenizer)
    if found is None:
        n = tokenizer.n_vocab
        ends = sorted(tokenizer.eos_ids)
        found = Vocabulary(
            [tokenizer.piece(i, special=True) for i in range(n)],
            sorted(tokenizer.control_ids),
            ends or [n - 1],
            _Speller(tokenizer),
            SLICES,
        )
        _known[tokenizer] = found
    return found


@cache
def bytes_alone() -> Vocabulary:
    """A vocabulary of the 256 bytes, for questions about texts."""
    pieces = [*(bytes([b]) for b in range(256)), b"<end>"]
    return Vocabulary(
        pieces,
        (),
        (BYTE_END,),
        lambda text: list(text.encode() if isinstance(text, str) else text),
        [],
    )
