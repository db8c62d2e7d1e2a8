"""What is asked of one answer: options checked and made whole before anything runs."""

from __future__ import annotations

import difflib
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.checks import seconds, texts, token_ids, whole
from gguf_runtime.engine.overflow import OnOverflow, checked
from gguf_runtime.engine.reply import Style
from gguf_runtime.engine.turn import OPTIONS as TURN_OPTIONS
from gguf_runtime.errors import RequestError, show
from gguf_runtime.samplers import BREAKERS
from gguf_runtime.samplers import NAMES as MORE
from gguf_runtime.sampling import RANGES, Sampling

if TYPE_CHECKING:
    from gguf_runtime.text.constraint import Constraint

RAW_TOKENS = 256  # of an answer without a template, unless said otherwise

# Keys under general.sampling of a file, and the parameters that they recommend.
_ADVICE = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
}
_OPTIONS = (
    *("max_tokens", "max_time", "stop", "stop_ids", "stop_on_loop", "on_overflow"),
    "ignore_eos",
    *("speculate", "reuse"),
)
CONSTRAINTS = ("schema", "regex", "grammar", "choices")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a generation, all defaults filled in.

    max_tokens  -1: until the context is full
    end_ids     tokens that end a turn
    speculate   guess ahead; changes the time, never the text
    reuse       start from what requests that began alike have read, and leave behind what this one
                reads; changes the time, never the text
    style       how the reply is read, None where it is nothing but text
    stop_on_loop  end where the answer repeats itself word for word
    on_overflow  what happens where the context is full: stop, error or trim
    constraint  what the answer has to be, None: anything
    started     clock at which the request began
    """

    sampling: Sampling
    max_tokens: int
    end_ids: frozenset[int]
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    max_time: float | None = None
    speculate: bool = True
    reuse: bool = True
    style: Style | None = None
    stop_on_loop: bool = False
    on_overflow: OnOverflow = "stop"
    constraint: Constraint | None = None
    started: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a model brings to every request."""

    n_vocab: int
    end_ids: frozenset[int]
    recommended: Mapping[str, float]
    seed: int | None
    breakers: Callable[[Sequence[str]], Sequence[Any]] = lambda texts: ()  # DRY's, as ids

    def request(
        self,
        *,
        templated: bool,
        max_tokens: int | None = None,
        max_time: float | None = None,
        stop: str | Sequence[str] | None = None,
        stop_ids: Sequence[int] | None = None,
        speculate: bool = True,
        reuse: bool = True,
        style: Style | None = None,
        stop_on_loop: bool = False,
        on_overflow: str = "stop",
        ignore_eos: bool = False,
        **sampling: Any,
    ) -> Request:
        """Options made whole; RequestError names one that is unknown or out of range."""
        started = time.perf_counter()
        asked = {k: sampling.pop(k) for k in CONSTRAINTS if k in sampling}
        unknown = [k for k in sampling if k not in SAMPLING]
        if unknown:
            names = sorted((*_OPTIONS, *CONSTRAINTS, *TURN_OPTIONS, *SAMPLING))
            near = difflib.get_close_matches(unknown[0], names, n=1)
            raise RequestError(
                f"unknown option {show(unknown[0])}",
                expected=f"one of {', '.join(names)}",
                hint=f"did you mean {near[0]}?" if near else None,
            )
        if max_tokens is None:
            max_tokens = -1 if templated else RAW_TOKENS
        if sampling.get("seed") is None:
            sampling["seed"] = self.seed
        if sampling.get("dry_multiplier"):
            words = sampling.get("dry_breakers") or BREAKERS
            sampling["dry_ids"] = self.breakers([w for w in words if isinstance(w, str)])
        if ignore_eos:
            given = sampling.get("logit_bias") or {}
            pairs = given.items() if isinstance(given, Mapping) else given
            sampling["logit_bias"] = [*pairs, *((i, -math.inf) for i in self.end_ids)]
        return Request(
            Sampling(**sampling, recommended=self.recommended),
            whole("max_tokens is outside its range", max_tokens, -1),
            self.end_ids,
            texts("stop", stop) if stop is not None else (),
            frozenset(token_ids(stop_ids, self.n_vocab) if stop_ids is not None else ()),
            seconds("max_time is outside its range", max_time) if max_time is not None else None,
            bool(speculate),
            bool(reuse),
            style,
            bool(stop_on_loop),
            checked(on_overflow),
            _constraint({k: v for k, v in asked.items() if v is not None}),
            started,
        )


def _constraint(asked: Mapping[str, Any]) -> Constraint | None:
    """The constraint that was asked for; RequestError for more than one."""
    if not asked:
        return None
    if len(asked) > 1:
        raise RequestError(f"{' and '.join(asked)} exclude each other", expected="one of them")
    from gguf_runtime.text.constraint import Constraint

    made = {
        "schema": Constraint.from_schema,
        "regex": Constraint.from_regex,
        "grammar": Constraint.from_gbnf,
        "choices": Constraint.from_choices,
    }
    ((kind, value),) = asked.items()
    return made[kind](value)


SAMPLING = (
    *(k for k in inspect.signature(Sampling).parameters if k not in ("recommended", "more")),
    *MORE,
)


def recommended(metadata: Mapping[str, Any]) -> dict[str, float]:
    """What the file advises for sampling; values that no sampler takes are left out."""
    found = {}
    for key, name in _ADVICE.items():
        value = metadata.get(f"general.sampling.{key}")
        if value is not None and RANGES[name].allows(value):
            found[name] = value
    return found
