"""The sizes that every decoder with grouped-query attention and a gated feed-forward net has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gguf_runtime.arch.rope_keys import LARGEST_COUNT, Scaling, read_scaling
from gguf_runtime.errors import ModelError

if TYPE_CHECKING:
    from gguf_runtime.gguf import Keys

MAX_WIDTH = 1 << 24  # far above any model, small enough that products fit 64 bits
MAX_LAYERS = 1 << 12
MIN_FREQ_BASE = 1.001


@dataclass(frozen=True, slots=True)
class Hyper:
    """Sizes and constants as the file's keys give them."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int | None  # None: no embedding, which `bind` reports
    n_ctx: int  # positions that the model was trained for
    norm_eps: float
    rope_freq_base: float
    n_rot: int
    scaling: Scaling
    attention_scale: float
    window: int  # 0: none

    @property
    def q_width(self) -> int:
        """Width of all query heads."""
        return self.n_head * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.n_head_kv * self.head_dim


def read_hyper(keys: Keys, n_vocab: int | None) -> Hyper:
    """Read and check the keys; ModelError for what the words here cannot express."""
    experts = keys.arch_int("expert_count", 0, low=0, high=1 << 16)
    if experts:
        raise ModelError(
            f'architecture "{keys.arch}" with {experts} experts is not supported yet',
            where=keys.path,
            expected="a dense model",
        )
    n_embd = keys.arch_int("embedding_length", low=1, high=MAX_WIDTH)
    n_head = keys.arch_int("attention.head_count", low=1, high=MAX_WIDTH)
    n_head_kv = keys.arch_int("attention.head_count_kv", n_head, low=1, high=n_head)
    if n_head % n_head_kv:
        raise _unfit(keys, "attention.head_count_kv", f"a divisor of {n_head}", n_head_kv)
    head_dim = keys.arch_int("attention.key_length", n_embd // n_head, low=1, high=MAX_WIDTH)
    value_dim = keys.arch_int("attention.value_length", head_dim, low=1, high=MAX_WIDTH)
    if value_dim != head_dim:
        raise _unfit(keys, "attention.value_length", f"the key length {head_dim}", value_dim)
    n_rot = keys.arch_int("rope.dimension_count", head_dim, low=2, high=head_dim)
    if n_rot % 2:
        raise _unfit(keys, "rope.dimension_count", "an even number", n_rot)
    n_ctx = keys.arch_int("context_length", low=1, high=LARGEST_COUNT)
    scale = keys.arch_float("attention.scale", 0.0, low=0.0, high=1e6)
    return Hyper(
        n_layer=keys.arch_int("block_count", low=1, high=MAX_LAYERS),
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        n_ff=keys.arch_int("feed_forward_length", low=1, high=MAX_WIDTH),
        n_vocab=n_vocab,
        n_ctx=n_ctx,
        norm_eps=keys.arch_float("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
        rope_freq_base=keys.arch_float("rope.freq_base", 10000.0, low=MIN_FREQ_BASE, high=1e12),
        n_rot=n_rot,
        scaling=read_scaling(keys, n_ctx),
        attention_scale=scale or head_dim**-0.5,
        window=keys.arch_int("attention.sliding_window", 0, low=0, high=LARGEST_COUNT),
    )


def _unfit(keys: Keys, key: str, expected: str, got: int) -> ModelError:
    return ModelError(
        f"key {keys.key(key)} does not fit", where=keys.path, expected=expected, got=got
    )
