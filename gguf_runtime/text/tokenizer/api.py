"""The tokenizer of a file: special tokens around the kind that does the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from gguf_runtime.errors import ModelError, RequestError, show
from gguf_runtime.text.tokenizer.bpe import BPE
from gguf_runtime.text.tokenizer.rwkv import RWKV
from gguf_runtime.text.tokenizer.special import Finder
from gguf_runtime.text.tokenizer.spm import SPM
from gguf_runtime.text.tokenizer.unigram import Unigram
from gguf_runtime.text.tokenizer.vocab import (
    CONTROL,
    END_TEXTS,
    FIM_TEXTS,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocab,
)
from gguf_runtime.text.tokenizer.wordpiece import WordPiece

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

Compat = Literal["published", "llama.cpp"]
Segment = tuple[str, bool]  # text, and whether special tokens may stand in it

Kind = BPE | SPM | WordPiece | Unigram | RWKV
KINDS: dict[str, type[Kind]] = {
    "bert": WordPiece,
    "gpt2": BPE,
    "llama": SPM,
    "rwkv": RWKV,
    "t5": Unigram,
}
_END_TEXTS = frozenset(END_TEXTS)


class Tokenizer:
    """Texts to ids and ids to bytes.

    `compat` chooses the rules where programs differ: "published" follows the tokenizer that the
    model was trained with, "llama.cpp" that program (no NFC; a token named `</s>` is a control
    token whatever the file says; user-defined tokens are cut out before spaces are replaced).
    Bytes that are no UTF-8 come back as they went in, or are refused.
    """

    def __init__(self, vocab: Vocab, pre: str | None = None, compat: Compat = "published") -> None:
        if compat not in ("published", "llama.cpp"):
            raise RequestError(
                "unknown reading of the vocabulary",
                where="compat",
                expected="published or llama.cpp",
                got=show(compat),
            )
        kind = KINDS.get(vocab.model)
        if kind is None:
            raise ModelError(
                f"unknown kind of tokenizer {show(vocab.model)}",
                where="tokenizer.ggml.model",
                expected="one of " + ", ".join(sorted(KINDS)),
            )
        self._vocab = vocab
        self._published = compat == "published"
        self._kind = kind(vocab, pre, self._published)
        self._bytes: dict[int, bytes] = {}
        self._file: GGUFFile | None = None  # whose pages the vocabulary lies in
        self.n_vocab = len(vocab.pieces)
        bert = vocab.model == "bert"
        self.bos_id = vocab.bos_id
        self.add_bos = self._kind.add_bos and self.bos_id is not None
        self._end_id = vocab.sep_id if bert else vocab.eos_id
        self.add_eos = (bert or bool(vocab.add_eos)) and self._end_id is not None

    @classmethod
    def from_gguf(
        cls,
        source: str | os.PathLike[str] | GGUFFile,
        pre: str | None = None,
        compat: Compat = "published",
    ) -> Tokenizer:
        """The tokenizer of a GGUF file, given by path or opened (vocabulary-only files too).

        Args:
            source: path, or what `gguf_runtime.gguf.open_file` returned.
            pre: a pre-tokenizer to use in place of the one that the file names.
            compat: see the class.

        Raises:
            ModelError: no vocabulary, or a kind or pre-tokenizer that is not known.
            FileError: the file cannot be read.
        """
        if isinstance(source, str | os.PathLike):
            from gguf_runtime.gguf import open_file

            source = open_file(source)
        made = cls(Vocab.from_metadata(source.metadata), pre, compat)
        made._file = source
        return made

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: eos, eot, eom, and control tokens that are one by their text."""
        vocab = self._vocab
        named = {vocab.eos_id, vocab.eot_id, vocab.eom_id} - {None}
        pieces = self._kind.index.pieces
        by_text = (i for i in self._special_ids if pieces[i] in _END_TEXTS)
        return tuple(sorted({i for i in (*named, *by_text) if i is not None}))

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids that only scaffolding can hold: control and unknown tokens, and what ends a turn."""
        return frozenset((*self._vocab.ids_of_type(CONTROL, UNKNOWN), *self._named, *self.eos_ids))

    @cached_property
    def control_texts(self) -> list[str]:
        """The texts of the control tokens."""
        return [text for text, _ in self._texts(sorted(self.control_ids))]

    def encode(
        self, text: str | bytes, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """The ids of a text.

        Args:
            text: bytes may be anything; a str with a lone surrogate is refused.
            add_special: put BOS and EOS where the file wants them.
            parse_special: let control tokens be matched in the text. Leave it off for text that
                a user or a document brought: its "<|im_end|>" is then spelled out.

        Raises:
            RequestError: a lone surrogate, or bytes that this vocabulary cannot spell.
        """
        exact = False
        if not isinstance(text, str):
            text, exact = _from_bytes(bytes(text))
        else:
            _check(text)
        ids = self._encode(text, [(0, len(text))] if parse_special else [], exact)
        return self._with_special(ids) if add_special else ids

    def encode_segments(self, segments: Iterable[Segment], add_special: bool = False) -> list[int]:
        """The ids of scaffolding and content joined, control tokens in scaffolding only.

        The text is cut as one text, so the ids are those of the whole rendering; but a control
        token is matched only where all of it is scaffolding. With `add_special` a BOS that the
        scaffolding begins with is not doubled.
        """
        texts: list[str] = []
        free: list[tuple[int, int]] = []
        at = 0
        for text, is_scaffolding in segments:
            _check(text)
            texts.append(text)
            if is_scaffolding and text:
                start = free.pop()[0] if free and free[-1][1] == at else at
                free.append((start, at + len(text)))
            at += len(text)
        ids = self._encode("".join(texts), free)
        return self._with_special(ids, once=True) if add_special else ids

    def decode(self, ids: Iterable[int], special: bool = False, whole: bool = True) -> bytes:
        """The bytes of ids; control tokens give none unless `special`.

        Args:
            ids: any ids of the vocabulary.
            special: print control tokens too.
            whole: the ids are a text from its beginning, so the space that encode put before it
                is taken away (SPM). False: the plain join of the pieces, as a stream shows them.
        """
        data = b"".join([self.piece(i, special) for i in ids])
        if whole and self._kind.space_prefix and data.startswith(b" "):
            return data[1:]
        return data

    def piece(self, i: int, special: bool = False) -> bytes:
        """The bytes of one id; a control token gives none unless `special`."""
        found = self._bytes.get(i)
        if found is None:
            if not 0 <= i < self.n_vocab:
                raise RequestError(
                    "no such token", expected=f"0 to {self.n_vocab - 1:,}", got=f"{i:,}"
                )
            self._check_file()
            found = self._bytes[int(i)] = self._kind.piece(int(i))
        return b"" if not special and i in self._silent else found

    def token(self, text: str) -> int | None:
        """The id of the token with this name, control tokens before others; None without."""
        raw = text.encode()
        found = self._special_by_text.get(raw)
        return self._kind.index.ids.get(raw) if found is None else found

    @cached_property
    def _special_by_text(self) -> dict[bytes, int]:
        pieces = self._kind.index.pieces
        return {pieces[i]: i for i in sorted({*self._special_ids, *self.control_ids})}

    def is_control(self, i: int) -> bool:
        """Whether the id is printed only on request."""
        return i in self._silent

    @cached_property
    def _silent(self) -> frozenset[int]:
        # A normal token named like an end token (qwen2 has `</s>`) is one that no text merges to,
        # so no text of the model's holds it; a user-defined one (gemma's HTML) is text.
        unreachable = (i for i in self._ends_by_text if self._vocab.types[i] == NORMAL)
        return frozenset((*self._vocab.ids_of_type(CONTROL, UNKNOWN), *unreachable, *self._renamed))

    @cached_property
    def _ends_by_text(self) -> list[int]:
        """Tokens named like an end token that are no control tokens."""
        ids = self._kind.index.ids
        return [i for text in (*END_TEXTS, b"</s>") if (i := ids.get(text)) is not None]

    @cached_property
    def _renamed(self) -> frozenset[int]:
        """llama.cpp's rule: what is named like an end token, or marks a gap to fill, is a control token."""
        if self._published:
            return frozenset()
        ids = self._kind.index.ids
        gaps = (i for text in FIM_TEXTS if (i := ids.get(text)) is not None)
        return frozenset((*self._ends_by_text, *gaps))

    @cached_property
    def _named(self) -> frozenset[int]:
        vocab = self._vocab
        ids = (vocab.bos_id, vocab.eos_id, vocab.eot_id, vocab.eom_id)
        return frozenset(i for i in ids if i is not None) | self._renamed

    @cached_property
    def _special_ids(self) -> list[int]:
        return self._vocab.ids_of_type(CONTROL, USER_DEFINED)

    @cached_property
    def _anywhere(self) -> Finder:
        """Tokens matched in every raw text."""
        if self._published and isinstance(self._kind, SPM):
            return Finder(())  # sentencepiece matches them after spaces are replaced
        ids = set(self._vocab.ids_of_type(USER_DEFINED)) - self.control_ids
        return Finder(self._texts(sorted(ids)))

    @cached_property
    def _in_scaffolding(self) -> Finder:
        """Tokens matched where special tokens are allowed."""
        return Finder(self._texts(sorted(self.control_ids)))

    def _texts(self, ids: Sequence[int]) -> Iterator[tuple[str, int]]:
        pieces = self._kind.index.pieces
        for i in ids:
            yield pieces[i].decode("utf-8", "replace"), i

    def _check_file(self) -> None:
        """FileError where the file was written to since it was opened."""
        if self._file is not None:
            self._file.check_unchanged()

    def _encode(self, text: str, free: list[tuple[int, int]], exact: bool = False) -> list[int]:
        """`free`: the stretches of the text, ascending and apart, that are scaffolding."""
        self._check_file()
        ids: list[int] = []
        done = 0
        for start, end, token in self._find(text, free):
            ids += self._kind.encode(text[done:start], True, exact)
            ids.append(token)
            done = end
        if done < len(text):
            ids += self._kind.encode(text[done:], True, exact)
        return ids

    def _find(self, text: str, free: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        """(start, end, token) of the tokens in the raw text, the longest at each place."""
        scaffolding = self._in_scaffolding if free else Finder(())
        starts = scaffolding.starts(text) if free else []
        if self._anywhere:
            starts = sorted({*starts, *self._anywhere.starts(text)})
        stretch, done = 0, 0
        for start in starts:
            if start < done:
                continue
            while stretch < len(free) and free[stretch][1] <= start:
                stretch += 1
            found = self._anywhere.match(text, start, len(text))
            if stretch < len(free) and free[stretch][0] <= start:
                other = scaffolding.match(text, start, free[stretch][1])
                if other and (found is None or other[1] >= found[1]):
                    found = other
            if found:
                token, done = found
                yield start, done, token

    def _with_special(self, ids: list[int], once: bool = False) -> list[int]:
        if self.add_bos and self.bos_id is not None and not (once and ids[:1] == [self.bos_id]):
            ids = [self.bos_id, *ids]
        if self.add_eos and self._end_id is not None:
            ids = [*ids, self._end_id]
        return ids


def _from_bytes(raw: bytes) -> tuple[str, bool]:
    """The text, and whether it holds bytes that are no UTF-8 (as Python's surrogate escapes)."""
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape"), True


def _check(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise RequestError(
            "the text holds half of a surrogate pair",
            got=f"U+{ord(text[e.start]):04X} at character {e.start:,}",
            hint="pass the raw bytes instead",
        ) from None
