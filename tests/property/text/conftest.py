"""Vocabularies small enough to read: 256 bytes, a few merges, a few special tokens."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_runtime.text import Tokenizer, Vocab
from gguf_runtime.text.tokenizer.bpe import LETTERS
from gguf_runtime.text.tokenizer.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED

SPECIALS = [(b"<s>", CONTROL), (b"</s>", CONTROL), (b"<|turn|>", CONTROL), (b"\n\n", USER_DEFINED)]
MERGES = ["t h", "th e", "Ġ the", "A A", "AA AA", "Ġ Ġ", "i n", "1 2", "Ã ©", "l l"]
WORDS = ["▁", "t", "h", "e", "th", "the", "▁the", "▁▁", "A", "AA", "AAAA", "i", "n", "in", "é"]


def bpe_vocab(pre: str = "gpt-2") -> Vocab:
    pieces = [c.encode() for c in LETTERS] + [m.replace(" ", "").encode() for m in MERGES]
    types = [NORMAL] * len(pieces) + [kind for _, kind in SPECIALS]
    first = len(pieces)
    return Vocab(
        model="gpt2",
        pieces=pieces + [text for text, _ in SPECIALS],
        types=np.array(types, np.uint8),
        merges=[m.encode() for m in MERGES],
        pre=pre,
        bos_id=first,
        eos_id=first + 1,
    )


def spm_vocab(add_space_prefix: bool) -> Vocab:
    specials = [(b"<unk>", UNKNOWN), *SPECIALS]
    pieces = [text for text, _ in specials] + [b"<0x%02X>" % b for b in range(256)]
    types = [kind for _, kind in specials] + [BYTE] * 256 + [NORMAL] * len(WORDS)
    scores = [0.0] * len(pieces) + [-float(i) for i in range(len(WORDS))]
    return Vocab(
        model="llama",
        pieces=pieces + [w.encode() for w in WORDS],
        types=np.array(types, np.uint8),
        scores=np.array(scores, np.float32),
        add_space_prefix=add_space_prefix,
        bos_id=1,
        eos_id=2,
        unk_id=0,
    )


@pytest.fixture(scope="session", params=["bpe", "spm", "spm without a space before"])
def tokenizer(request) -> Tokenizer:
    if request.param == "bpe":
        return Tokenizer(bpe_vocab())
    return Tokenizer(spm_vocab(add_space_prefix=request.param == "spm"))
