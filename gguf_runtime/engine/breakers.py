"""Texts that end a run of repeated tokens (DRY), as the tokens of a vocabulary that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf_runtime.text.tokenizer import Tokenizer

MOST_BYTES = 40  # of a text
MOST_TAIL = 20  # tokens behind the first


def breakers_of(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Sequences of ids for texts: each token that holds the text, and each whose end begins it, with the rest."""
    found: dict[tuple[int, ...], None] = {}
    words = [w for t in texts if (w := t.encode()[:MOST_BYTES])]
    tails: dict[bytes, tuple[int, ...]] = {}
    for i in range(tokenizer.n_vocab) if words else ():
        piece = tokenizer.piece(i, special=True)
        for word in words:
            if word in piece:
                found[(i,)] = None
                continue
            for n in range(min(len(word) - 1, len(piece)), 0, -1):
                if not piece.endswith(word[:n]):
                    continue
                rest = word[n:]
                if rest not in tails:
                    tails[rest] = tuple(tokenizer.encode(rest.decode("utf-8", "replace")))
                found[(i, *tails[rest][:MOST_TAIL])] = None
    return tuple(found)
