"""The `rope.*` keys: frequencies as trained, and how they are stretched for longer contexts.

Linear scaling divides every frequency; YaRN (arXiv:2309.00071) divides the slow ones, keeps the fast
ones, ramps between them and enlarges cos and sin. Llama 3's scaling is a tensor of divisors.
A scaling key that nothing here reads is refused: served unscaled, the model would quietly be wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import ModelError
from gguf_runtime.graph.rope import Rope, RopeKind
from quant import elementary

if TYPE_CHECKING:
    from gguf_runtime.gguf import Keys

_READ = {
    "type",
    "factor",
    "original_context_length",
    "attn_factor",
    "finetuned",  # says how the model was trained; nothing to compute
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
}
_HUGE = 1e9
LARGEST_COUNT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Scaling:
    """How trained frequencies are stretched.

    factor       context length over the trained one
    n_ctx_orig   trained context length, positions
    beta         turns over the trained context above which yarn keeps a frequency, and below which
                 it divides it
    magnitude    factor of cos and sin
    """

    type: Literal["none", "linear", "yarn"]
    factor: float = 1.0
    n_ctx_orig: int = 0
    beta: tuple[float, float] = (32.0, 1.0)
    magnitude: float = 1.0


UNSCALED = Scaling("none")


def read_scaling(keys: Keys, n_ctx: int) -> Scaling:
    """The model's scaling; ModelError for a kind or a key that is not known."""
    _refuse_unread(keys)
    old = keys.arch_float("rope.scale_linear", 1.0, low=1e-3, high=_HUGE)
    kind = keys.arch_str("rope.scaling.type", "linear")
    factor = keys.arch_float("rope.scaling.factor", old, low=0.0, high=_HUGE) or 1.0  # 0: unset
    magnitude = keys.arch_float("rope.scaling.attn_factor", 1.0, low=1e-3, high=1e3)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return Scaling("none", magnitude=magnitude)
    if kind == "linear":
        return Scaling("linear", factor, magnitude=magnitude)
    if kind != "yarn":
        raise ModelError(
            f'rope scaling "{kind}" is not supported ({keys.key("rope.scaling.type")})',
            where=keys.path,
            expected="none, linear or yarn",
        )
    grown = 0.1 * float(elementary.log2(max(factor, 1.0))) * elementary.LN2 + 1.0
    return Scaling(
        "yarn",
        factor,
        keys.arch_int("rope.scaling.original_context_length", n_ctx, low=1, high=LARGEST_COUNT),
        (
            keys.arch_float("rope.scaling.yarn_beta_fast", 32.0, low=1e-3, high=_HUGE),
            keys.arch_float("rope.scaling.yarn_beta_slow", 1.0, low=1e-3, high=_HUGE),
        ),
        keys.arch_float("rope.scaling.yarn_attn_factor", grown, low=1e-3, high=1e3) * magnitude,
    )


def _refuse_unread(keys: Keys) -> None:
    prefix = keys.key("rope.scaling.")
    unread = [
        key for key in keys.metadata if key.startswith(prefix) and key[len(prefix) :] not in _READ
    ]
    if unread:
        raise ModelError(
            f"the rope scaling keys {', '.join(sorted(unread))} are not supported",
            where=keys.path,
        )


def make_rope(
    kind: RopeKind,
    *,
    head_dim: int,
    n_rot: int,
    base: float,
    scaling: Scaling = UNSCALED,
    divisors: NDArray[np.float32] | None = None,
) -> Rope:
    """The rotation of heads of `head_dim` values, of which the first `n_rot` turn.

    Args:
        kind: which components are pairs.
        head_dim: values per head.
        n_rot: components that turn, even.
        base: the frequency of pair i is base^(-2i / n_rot).
        scaling: how frequencies are stretched.
        divisors: (n_rot / 2,) what each frequency is divided by first (`rope_freqs.weight`).
    """
    half = np.arange(n_rot // 2, dtype=np.float64)
    freqs = elementary.pow(base, -2.0 * half / n_rot)
    if divisors is not None:
        freqs = freqs / divisors.reshape(-1).astype(np.float64)
    if scaling.type == "linear":
        freqs = freqs / scaling.factor
    elif scaling.type == "yarn":
        slow = _yarn_ramp(n_rot, base, scaling)
        freqs = freqs / scaling.factor * slow + freqs * (1.0 - slow)
    freqs.flags.writeable = False
    return Rope(kind, head_dim, freqs, scaling.magnitude)


def _yarn_ramp(n_rot: int, base: float, scaling: Scaling) -> NDArray[np.float64]:
    """0 for pairs that keep their frequency … 1 for pairs whose frequency is divided."""
    log_base = float(elementary.log2(base))
    pair = [
        n_rot * float(elementary.log2(scaling.n_ctx_orig / (2.0 * math.pi * turns))) / log_base / 2
        for turns in scaling.beta
    ]
    low, high = max(math.floor(pair[0]), 0), min(math.ceil(pair[1]), n_rot - 1)
    half = np.arange(n_rot // 2, dtype=np.float64)
    return np.clip((half - low) / max(0.001, high - low), 0.0, 1.0)
