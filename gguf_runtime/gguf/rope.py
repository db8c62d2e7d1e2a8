"""Rotary positions as a file states them: base, scaling, trained length, defaults filled in.

Facts for `inspect` and `Model.info`, for any architecture; the frequencies are built by `arch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gguf_runtime.gguf.keys import WIDTH, Keys

if TYPE_CHECKING:
    from gguf_runtime.gguf.file import GGUFFile

__all__ = ["NO_ROPE", "Rope", "read_rope"]

SCALINGS = {word: word for word in ("none", "linear", "yarn", "longrope")}
# Where the file has no base for window layers and it is not that of the others.
WINDOW_BASES = dict.fromkeys(
    ("gemma3", "gemma3n", "gemma4", "gemma-embedding", "modern-bert"), 10_000.0
)
UNSCALED_WINDOWS = {"gemma3", "laguna", "mellum", "olmo2"}  # window layers keep plain positions
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions as they take effect, defaults filled in.

    base_window   of layers with a sliding window; `window_scaled` says if scaling holds for them
    scaling       none, linear, yarn or longrope; `factor` 1.0 where it is none
    n_ctx         positions before scaling; those the model was trained with are `Manifest.n_ctx`
    factors       names of tensors that divide the frequencies
    attn_factor   and what follows: None where the file has no such key
    """

    base: float
    base_window: float
    n_dims: int
    scaling: str
    factor: float
    n_ctx: int
    factors: tuple[str, ...]
    window_scaled: bool = True
    finetuned: bool | None = None
    attn_factor: float | None = None
    yarn_attn_factor: float | None = None
    yarn_ext_factor: float | None = None
    yarn_beta_fast: float | None = None
    yarn_beta_slow: float | None = None
    yarn_log_multiplier: float | None = None


NO_ROPE = Rope(0.0, 0.0, 0, "none", 1.0, 0, ())


def read_rope(file: GGUFFile, keys: Keys, head_dim: int, n_ctx: int) -> Rope:
    """The keys with defaults filled in; a scaling that is not known is a ModelError."""

    def optional(suffix: str) -> float | None:
        return keys.arch_float(f"rope.scaling.{suffix}", None)

    base = keys.arch_float("rope.freq_base", 10_000.0, low=1e-3)
    factor = keys.arch_float("rope.scaling.factor", None, low=0.0)
    if factor is None:
        factor = keys.arch_float("rope.scale_linear", 1.0, low=0.0)
    scaling = keys.choice(keys.key("rope.scaling.type"), SCALINGS, "linear")
    if factor in (0.0, 1.0) and scaling == "linear":
        scaling = "none"
    return Rope(
        base=base,
        base_window=keys.arch_float(
            "rope.freq_base_swa", WINDOW_BASES.get(keys.arch, base), low=1e-3
        ),
        n_dims=keys.arch_int("rope.dimension_count", head_dim, high=WIDTH),
        scaling=scaling,
        factor=1.0 if scaling == "none" or factor == 0.0 else factor,
        n_ctx=keys.arch_int("rope.scaling.original_context_length", n_ctx),
        factors=tuple(n for name in FACTORS for n in _tensor_in(file, name)),
        window_scaled=keys.arch not in UNSCALED_WINDOWS,
        finetuned=keys.arch_bool("rope.scaling.finetuned", None),
        attn_factor=optional("attn_factor"),
        yarn_attn_factor=optional("yarn_attn_factor"),
        yarn_ext_factor=optional("yarn_ext_factor"),
        yarn_beta_fast=optional("yarn_beta_fast"),
        yarn_beta_slow=optional("yarn_beta_slow"),
        yarn_log_multiplier=optional("yarn_log_multiplier"),
    )


def _tensor_in(file: GGUFFile, name: str) -> tuple[str, ...]:
    """The tensor of that name, or of layer 0: some converters store one copy per layer."""
    return next(((n,) for n in (name, f"blk.0.{name}") if n in file.tensors), ())
