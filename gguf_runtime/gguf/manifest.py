"""What a model file says about its model: the known keys, typed, in range, and frozen.

One pass over the keys that all architectures share. What only one architecture reads stays with it.
Every key that is wrong is named in one error. Defaults are those of llama.cpp (September 2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gguf_runtime.errors import ModelError, show
from gguf_runtime.gguf.keys import WIDTH, Keys
from gguf_runtime.gguf.rope import NO_ROPE, Rope, read_rope
from gguf_runtime.gguf.strings import StringArray

if TYPE_CHECKING:
    from gguf_runtime.gguf.file import GGUFFile

__all__ = ["Manifest", "Rope", "Vocabulary", "read_manifest"]

T = TypeVar("T")

LAYERS = 4096
LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Facts about the tokenizer; the tokens themselves are read by `text`."""

    model: str
    pre: str | None
    n_tokens: int
    n_merges: int
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    unknown_id: int | None
    padding_id: int | None
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None
    has_template: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Shape of the model. What differs between layers is a tuple with one number per layer."""

    architecture: str
    name: str | None
    size_label: str | None
    license: str | None
    file_type: int | None
    n_layer: int
    n_ctx: int
    n_embd: int
    n_vocab: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    head_dim: int
    head_dim_v: int
    norm_eps: float | None
    window: int | None
    n_expert: int
    n_expert_used: tuple[int, ...]
    rope: Rope
    vocabulary: Vocabulary | None
    n_params: int
    bits_per_weight: float


class _Collector:
    """Runs readers and keeps what they raise, so that one error can name every faulty key."""

    def __init__(self) -> None:
        self.errors: list[ModelError] = []

    def get(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except ModelError as error:
            self.errors.append(error)
            return otherwise

    def finish(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            first, *rest = self.errors
            what = "; ".join([first.what, *(e.what for e in rest)])
            raise ModelError(
                f"{len(self.errors):,} keys cannot be used: {what}",
                where=first.where,
                expected=first.expected,
                got=first.got,
                hint=first.hint,
            )


def read_manifest(file: GGUFFile) -> Manifest:
    """The manifest of a file, also of an architecture that cannot be run."""
    keys, bad = Keys(file), _Collector()
    n_layer = bad.get(lambda: keys.arch_int("block_count", low=1, high=LAYERS), 0)
    bad.finish()  # everything below has one value per layer
    n_embd = bad.get(lambda: keys.arch_int("embedding_length", low=1, high=WIDTH), 0)
    n_ctx = bad.get(lambda: keys.arch_int("context_length", low=1), 0)

    def per_layer(suffix: str, otherwise: tuple[int, ...] = ()) -> tuple[int, ...]:
        return bad.get(lambda: keys.arch_ints(suffix, n_layer, otherwise, high=WIDTH), otherwise)

    def text(key: str) -> str | None:
        return bad.get(lambda: keys.str(key, None), None)

    n_head = per_layer("attention.head_count")
    n_ff = per_layer("feed_forward_length")
    most_heads = max(n_head, default=0)
    plain_dim = n_embd // most_heads if most_heads else 0
    head_dim = bad.get(lambda: keys.arch_int("attention.key_length", plain_dim, high=WIDTH), 0)
    head_dim_v = bad.get(lambda: keys.arch_int("attention.value_length", plain_dim, high=WIDTH), 0)
    window = bad.get(lambda: keys.arch_int("attention.sliding_window", None), None)
    vocabulary = bad.get(lambda: _vocabulary(keys), None)
    bad.get(lambda: _check_layers(file, keys, n_layer, n_head, n_ff), None)
    weights = sum(t.n_elements for t in file.tensors.values())
    size_bytes = sum(t.size_bytes for t in file.tensors.values())
    manifest = Manifest(
        architecture=keys.arch,
        name=text("general.name"),
        size_label=text("general.size_label"),
        license=text("general.license"),
        file_type=bad.get(lambda: keys.int("general.file_type", None), None),
        n_layer=n_layer,
        n_ctx=n_ctx,
        n_embd=n_embd,
        n_vocab=bad.get(lambda: _n_vocab(file, keys, vocabulary), 0),
        n_head=n_head,
        n_head_kv=per_layer("attention.head_count_kv", n_head),
        n_ff=n_ff,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        norm_eps=bad.get(lambda: _norm_eps(keys), None),
        window=window or None,
        n_expert=bad.get(lambda: keys.arch_int("expert_count", 0, high=1 << 16), 0),
        n_expert_used=per_layer("expert_used_count"),
        rope=bad.get(lambda: read_rope(file, keys, head_dim, n_ctx), NO_ROPE),
        vocabulary=vocabulary,
        n_params=weights,
        bits_per_weight=8 * size_bytes / weights if weights else 0.0,
    )
    bad.finish()
    return manifest


def _norm_eps(keys: Keys) -> float | None:
    for suffix in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"):
        eps = keys.arch_float(suffix, None, low=0.0, high=1.0)
        if eps is not None:
            return eps
    return None


def _vocabulary(keys: Keys) -> Vocabulary | None:
    model = keys.str("tokenizer.ggml.model", None)
    if model is None:
        return None
    tokens = keys.strings("tokenizer.ggml.tokens", None)
    merges = keys.metadata.get("tokenizer.ggml.merges")

    def special(name: str) -> int | None:
        value = keys.int(f"tokenizer.ggml.{name}_token_id", None, low=-1, high=(1 << 32) - 1)
        return value if value is not None and 0 <= value < (len(tokens) if tokens else 0) else None

    return Vocabulary(
        model=model,
        pre=keys.str("tokenizer.ggml.pre", None),
        n_tokens=len(tokens) if tokens is not None else 0,
        n_merges=len(merges) if isinstance(merges, StringArray) else 0,
        bos_id=special("bos"),
        eos_id=special("eos"),
        eot_id=special("eot"),
        unknown_id=special("unknown"),
        padding_id=special("padding"),
        add_bos=keys.bool("tokenizer.ggml.add_bos_token", None),
        add_eos=keys.bool("tokenizer.ggml.add_eos_token", None),
        add_space_prefix=keys.bool("tokenizer.ggml.add_space_prefix", None),
        has_template="tokenizer.chat_template" in keys,
    )


def _n_vocab(file: GGUFFile, keys: Keys, vocabulary: Vocabulary | None) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2:
        return embedding.shape[1]
    listed = vocabulary.n_tokens if vocabulary else 0
    return keys.arch_int("vocab_size", listed)


def _check_layers(
    file: GGUFFile, keys: Keys, n_layer: int, n_head: tuple[int, ...], n_ff: tuple[int, ...]
) -> None:
    """`block_count` layers are there, no more and no fewer."""
    present = {int(m[1]) for m in map(LAYER.match, file.tensors) if m and len(m[1]) < 7}
    if not present:
        return  # a vocabulary alone, or a file of another layout
    stacks = keys.arch_int("hrm.layers_per_stack", None, high=LAYERS)
    n_stored = n_layer if stacks is None else 2 * stacks  # hrm: blocks are run several times
    # A layer without heads and without feed-forward has no tensors (deci).
    empty = {i for i, (h, f) in enumerate(zip(n_head, n_ff, strict=False)) if not h and not f}
    missing = sorted(set(range(n_stored)) - present - empty)
    extra = sorted(i for i in present if i >= n_stored)
    if not missing and not extra:
        return
    got = f"tensors of {len(present):,} layers"
    if missing:
        got += f", none of layer {missing[0]:,}"
    if extra:
        got += f", and some of layer {extra[-1]:,}"
    raise ModelError(
        f"key {show(keys.key('block_count'))[1:-1]} does not agree with the tensors",
        where=file.path,
        expected=f"{n_stored:,} layers, blk.0 to blk.{n_stored - 1}",
        got=got,
        hint="the file is incomplete or its metadata were edited: get it again",
    )
