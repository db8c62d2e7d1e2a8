"""Parameters of llama.cpp's samplers beyond those that `Sampling` names itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from gguf_runtime.errors import RequestError, show

ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
SHORT = {"typ_p": "typical_p", "typical": "typical_p", "temp": "temperature"}
BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True, slots=True)
class More:
    """Parameters of these samplers; each default switches its sampler off.

    top_n_sigma  masks logits more than so many deviations below the maximum; 0 or less: off
    typical_p    keeps those of usual surprise until they make up this much; 1: off
    xtc_probability, xtc_threshold  how often all but the last of those at least so likely go
    dynatemp_range, dynatemp_exponent  the temperature follows the entropy, this far to both sides
    dry_*        against repeated runs of tokens; dry_breakers end a run: texts or lists of ids
    dry_ids      the texts among them as ids of the vocabulary
    mirostat     1 or 2: holds the surprise at mirostat_tau, in place of the other cuts
    adaptive_target, adaptive_decay  aims at tokens of about this probability; below 0: off
    min_keep     candidates that cuts by probability leave at least
    logit_bias   id -> what is added to its logit; -inf forbids it
    samplers     the chain, in order
    """

    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = 64
    dry_breakers: tuple[str | tuple[int, ...], ...] = BREAKERS
    dry_ids: tuple[tuple[int, ...], ...] = ()
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    mirostat_m: int = 100
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    samplers: tuple[str, ...] = ORDER

    @classmethod
    def of(cls, **asked: Any) -> More:
        """Values, checked; RequestError names one outside its range."""
        found = {k: _checked(k, v) for k, v in asked.items() if v is not None}
        return cls(**found)

    def as_dict(self) -> dict[str, Any]:
        """Every value by its name, as the command line takes it."""
        found = {n: getattr(self, n) for n in NAMES if n != "dry_ids"}
        found["samplers"] = ";".join(self.samplers)
        found["dry_breakers"] = [b for b in self.dry_breakers if isinstance(b, str)]
        found["logit_bias"] = [f"{i}={b:g}" for i, b in self.logit_bias.items()]
        return found

    @property
    def asks(self) -> bool:
        """Whether anything differs from the kernels' chain."""
        return (
            self.top_n_sigma > 0
            or self.typical_p < 1
            or self.xtc_probability > 0
            or self.dynatemp_range > 0
            or (self.dry_multiplier != 0 and self.dry_base >= 1 and self.dry_last_n > 0)
            or self.stateful
            or self.min_keep > 1
            or bool(self.logit_bias)
            or self.samplers != ORDER
        )

    @property
    def stateful(self) -> bool:
        """A choice depends on how likely the ones before were."""
        return self.mirostat > 0 or self.adaptive_target >= 0


NAMES = tuple(f.name for f in fields(More))
_RANGES: dict[str, tuple[float, float]] = {
    "top_n_sigma": (-math.inf, math.inf),
    "typical_p": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "dynatemp_range": (0, math.inf),
    "dynatemp_exponent": (0, math.inf),
    "dry_multiplier": (0, math.inf),
    "dry_base": (0, math.inf),
    "dry_allowed_length": (0, 2**31 - 1),
    "dry_last_n": (-1, 2**31 - 1),
    "mirostat": (0, 2),
    "mirostat_tau": (0, math.inf),
    "mirostat_eta": (0, math.inf),
    "mirostat_m": (1, 2**31 - 1),
    "adaptive_target": (-math.inf, 1),
    "adaptive_decay": (0, 0.99),
    "min_keep": (0, 2**31 - 1),
}
_WHOLE = ("dry_allowed_length", "dry_last_n", "mirostat", "mirostat_m", "min_keep")


def _checked(name: str, x: Any) -> Any:
    if name == "samplers":
        return _order(x)
    if name == "logit_bias":
        return _biases(x)
    if name == "dry_breakers":
        if isinstance(x, str) or not isinstance(x, Sequence):
            raise RequestError("dry_breakers are a list of texts", got=show(x))
        return tuple(b if isinstance(b, str) else tuple(int(i) for i in b) for b in x)
    if name == "dry_ids":
        return tuple(tuple(int(i) for i in b) for b in x)
    low, high = _RANGES[name]
    kinds = (int, np.integer) if name in _WHOLE else (int, float, np.integer, np.floating)
    if (
        isinstance(x, bool)
        or not isinstance(x, kinds)
        or not low <= x <= high
        or not math.isfinite(x)
    ):
        kind = "a whole number" if name in _WHOLE else "a number"
        raise RequestError(
            f"{name} is outside its range", expected=f"{kind} from {low:g} to {high:g}", got=show(x)
        )
    return int(x) if name in _WHOLE else float(x)


def _order(x: Any) -> tuple[str, ...]:
    names = tuple(x.replace(",", ";").split(";")) if isinstance(x, str) else tuple(x)
    found = tuple(SHORT.get(str(n).strip(), str(n).strip()) for n in names if str(n).strip())
    unknown = [n for n in found if n not in ORDER]
    if unknown or len(set(found)) < len(found):
        what = f"no sampler {show(unknown[0])}" if unknown else "a sampler stands twice"
        raise RequestError(what, where="samplers", expected="some of " + ", ".join(ORDER))
    return found


def _biases(x: Any) -> dict[int, float]:
    pairs = x.items() if isinstance(x, Mapping) else x
    try:
        found: dict[int, float] = {}
        for i, b in pairs:  # an id may stand twice
            found[int(i)] = found.get(int(i), 0.0) + float(b)
    except (TypeError, ValueError):
        raise RequestError(
            "logit_bias is wrong", expected="a dict of id and bias", got=show(x)
        ) from None
    bad = [i for i, b in found.items() if i < 0 or math.isnan(b) or b == math.inf]
    if bad:
        raise RequestError(
            "logit_bias is wrong", expected="ids of 0 or more; numbers or -inf", got=show(bad[0])
        )
    return found
