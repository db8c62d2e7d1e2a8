"""What a file says about its vocabulary, checked and frozen.

Pieces stay as the file has them: byte-level BPE in its alphabet of 256 letters, SPM with U+2581 for
a space. Nothing is hashed here; the tables that encode need are built on first use (`index.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import ModelError, show
from gguf_runtime.gguf.lookup import Lookup
from gguf_runtime.gguf.strings import StringArray

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Texts that end a turn in files that do not name their end-of-turn token.
END_TEXTS = (
    b"<|eot_id|>",
    b"<|im_end|>",
    b"<|end|>",
    b"<end_of_turn>",
    b"<|endoftext|>",
    b"<|end_of_text|>",
    b"<EOT>",
    b"_<EOT>",
    b"[EOT]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>".encode(),
    b"<end_of_utterance>",
    b"<|return|>",
    b"<|call|>",
    b"<|eom_id|>",
    b"[EOS]",
    b"<eos>",
    b"<turn|>",
)

# Tokens around a gap that a model fills.
FIM_TEXTS = (
    *(b"<|fim_prefix|>", b"<|fim_suffix|>", b"<|fim_middle|>"),
    *(b"<fim-prefix>", b"<fim-suffix>", b"<fim-middle>"),
    *(b"<fim_prefix>", b"<fim_suffix>", b"<fim_middle>"),
    *(f"<\uff5cfim\u2581{word}\uff5c>".encode() for word in ("begin", "hole", "end")),
)


class Pieces(Protocol):
    """Bytes by id: a list, or the loader's lazy array of strings."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> bytes: ...
    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Vocab:
    """Facts of `tokenizer.ggml.*`; an id that the file does not give is None."""

    model: str
    pieces: Pieces
    types: NDArray[np.uint8]  # (n_vocab,)
    scores: NDArray[np.float32] | None = None  # (n_vocab,)
    merges: Pieces | None = None
    pre: str | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    eom_id: int | None = None
    unk_id: int | None = None
    sep_id: int | None = None
    lowercase: bool | None = None
    remove_extra_whitespaces: bool | None = None
    charsmap: bytes | None = None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Vocab:
        """Reads the keys `tokenizer.ggml.*`.

        Raises:
            ModelError: no vocabulary, or fields that contradict each other.
        """

        def get(name: str) -> Any:
            return metadata.get(f"tokenizer.ggml.{name}")

        model, pieces = get("model"), get("tokens")
        first = "bos" if get("bos_token_id") is not None else "cls"
        if model is None or pieces is None:
            raise ModelError(
                "the file has no vocabulary",
                where="tokenizer.ggml.model" if model is None else "tokenizer.ggml.tokens",
                hint="it may be one of several parts, or hold weights only",
            )
        n = len(pieces)
        merges = get("merges")
        for name, value in (("tokens", pieces), ("merges", merges)):
            if value is not None and (len(value) and not isinstance(value[0], bytes)):
                raise ModelError("the array holds no strings", where=f"tokenizer.ggml.{name}")
        return cls(
            model=_text(model, "model") or "",
            pieces=pieces,
            types=_types(get("token_type"), n),
            scores=_scores(get("scores"), n),
            merges=merges,
            pre=_text(get("pre"), "pre"),
            add_bos=_flag(get("add_bos_token"), "add_bos_token"),
            add_eos=_flag(get("add_eos_token"), "add_eos_token"),
            add_space_prefix=_flag(get("add_space_prefix"), "add_space_prefix"),
            lowercase=_flag(get("normalizer.lowercase"), "normalizer.lowercase"),
            remove_extra_whitespaces=_flag(
                get("remove_extra_whitespaces"), "remove_extra_whitespaces"
            ),
            charsmap=_bytes(get("precompiled_charsmap")),
            **{
                f"{short}_id": _id(get(f"{name}_token_id"), f"{name}_token_id", n)
                for short, name in (
                    ("bos", first),
                    ("eos", "eos"),
                    ("eot", "eot"),
                    ("eom", "eom"),
                    ("unk", "unknown"),
                    ("sep", "seperator"),  # so the key is spelled
                )
            },
        )

    def ids_of_type(self, *types: int) -> list[int]:
        """Ids whose type is one of these, ascending."""
        found: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return found


def _types(value: Any, n: int) -> NDArray[np.uint8]:
    if value is None:
        return np.full(n, NORMAL, np.uint8)
    types = _numbers(value, n, "token_type")
    return np.where((types >= 0) & (types < 256), types, 0).astype(np.uint8)


def _scores(value: Any, n: int) -> NDArray[np.float32] | None:
    if value is None:
        return None
    scores = _numbers(value, n, "scores").astype(np.float32)
    if np.isnan(scores).any():
        raise ModelError(
            "a score is no number",
            where="tokenizer.ggml.scores",
            got=f"NaN for token {int(np.isnan(scores).argmax()):,}",
        )
    return scores


def _numbers(value: Any, n: int, name: str) -> NDArray[Any]:
    where = f"tokenizer.ggml.{name}"
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise ModelError("the array holds no numbers", where=where, got=show(str(array.dtype)))
    if len(array) != n:
        raise ModelError(
            "the array has not one entry per token",
            where=where,
            expected=f"{n:,}",
            got=f"{len(array):,}",
        )
    return array


def _id(value: Any, name: str, n: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ModelError("no token id", where=f"tokenizer.ggml.{name}", got=show(value))
    # Converters write 2^32-1 (that is, -1) for "none".
    if value < 0 or value == 0xFFFFFFFF:
        return None
    if value >= n:
        raise ModelError(
            "the id is outside the vocabulary",
            where=f"tokenizer.ggml.{name}",
            expected=f"less than {n:,}",
            got=f"{value:,}",
        )
    return int(value)


def _flag(value: Any, name: str) -> bool | None:
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    raise ModelError("no truth value", where=f"tokenizer.ggml.{name}", got=show(value))


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return np.ascontiguousarray(value, np.uint8).tobytes()


def _text(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise ModelError("no text", where=f"tokenizer.ggml.{name}", got=show(value))


def numbers_of(
    pieces: Pieces, include: NDArray[np.uint8] | None = None, last: bool = True
) -> Lookup:
    """Number by text of the pieces that `include` says; of equal ones the last or the first."""
    if isinstance(pieces, StringArray):
        return pieces.numbers(include, last)
    order = [i for i in range(len(pieces)) if include is None or include[i]]
    known = {pieces[i]: i for i in (order if last else reversed(order))}
    return Lookup(lambda: known)


def spans(pieces: Pieces) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """(bytes, starts, ends): piece i is bytes[starts[i] : ends[i]]; starts ascend."""
    if isinstance(pieces, StringArray):
        first, last = int(pieces.offsets[0]), int(pieces.offsets[-1])
        starts = pieces.offsets[:-1] + (8 - first)
        return pieces.data[first:last], starts, starts + pieces.lengths()
    texts = list(pieces)
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends[:-1], ends[1:]
