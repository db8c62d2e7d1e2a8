"""The parameters of sampling, made normal, and the state of one sequence's sampler.

The chain is llama.cpp's: penalties, top_k, top_p, min_p, temperature, draw. `kernels.sample` runs it on
the tape from the record that `Sampling.record` fills; `candidates` and `draw` run the same in numpy, with
the same bits, without loading a model.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gguf_runtime.errors import RequestError, show
from gguf_runtime.kernels import sample_bits
from gguf_runtime.kernels.sample_bits import RECORD, Chain
from gguf_runtime.samplers import NAMES, More
from gguf_runtime.samplers.chain import Wide

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

SEEDS = 2**32


@dataclass(frozen=True, slots=True)
class Range:
    """What a parameter may be, and its built-in value."""

    default: float
    low: float
    high: float
    whole: bool = False
    open: bool = False  # low itself is refused

    def allows(self, x: float) -> bool:
        """X is a number of the right kind within the range."""
        if isinstance(x, bool) or not isinstance(x, int | float | np.integer | np.floating):
            return False
        if not math.isfinite(x) or (self.whole and x != int(x)):
            return False
        return self.low <= x <= self.high and not (self.open and x == self.low)

    def __str__(self) -> str:
        """The range in words."""
        kind = "a whole number" if self.whole else "a number"
        low = f"above {self.low:g}" if self.open else f"of at least {self.low:g}"
        return f"{kind} {low}" + (f" and at most {self.high:g}" if math.isfinite(self.high) else "")


INF = float("inf")
RANGES = {
    "temperature": Range(0.8, 0, INF),
    "top_k": Range(40, -1, 2**31 - 1, whole=True),
    "top_p": Range(0.95, 0, 1),
    "min_p": Range(0.05, 0, 1),
    "repeat_penalty": Range(1.0, 0, INF, open=True),
    "presence_penalty": Range(0.0, -INF, INF),
    "frequency_penalty": Range(0.0, -INF, INF),
    "repeat_last_n": Range(64, -1, 2**31 - 1, whole=True),
    "seed": Range(0, 0, SEEDS - 1, whole=True),
    "sample": Range(0, 0, SEEDS - 1, whole=True),
}
PENALTIES = ("repeat_penalty", "presence_penalty", "frequency_penalty")


class Sampling:
    """Parameters of one request, with the tokens that it has accepted.

    Args:
        temperature: divides the logits; 0 takes the first maximum of the raw logits and leaves out
            every penalty that was not given here.
        top_k: how many of the likeliest stay; 0 or -1: all.
        top_p: the likeliest stay until they make up this much; 1: all.
        min_p: those stay that are at least this likely beside the likeliest; 0: all.
        repeat_penalty: divides positive logits of lately seen tokens, multiplies the others; 1: none.
        presence_penalty: taken once from the logit of a lately seen token.
        frequency_penalty: taken for each time that it was seen.
        repeat_last_n: how many accepted tokens are lately; 0 or -1: none, as in llama.cpp's samplers.
        seed: below 2^32; None: random, see `.seed`.
        sample: number of the sample, for several of one prompt.
        recommended: values of the model file, used for what is None.
        more: the rest of llama.cpp's samplers, see `samplers.More`; they run in numpy, the chain
            above in kernels.

    At least one candidate always stays.

    Raises:
        RequestError: a value outside its range.
    """

    def __init__(
        self,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repeat_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        repeat_last_n: int | None = None,
        seed: int | None = None,
        sample: int = 0,
        recommended: Mapping[str, float] | None = None,
        **more: Any,
    ) -> None:
        unknown = [k for k in more if k not in NAMES]
        if unknown:
            raise RequestError(f"no sampling parameter {show(unknown[0])}")
        asked: dict[str, float | None] = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repeat_penalty": repeat_penalty,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "repeat_last_n": repeat_last_n,
        }
        advice = {k: x for k, x in (recommended or {}).items() if k in asked}
        values = {k: _value(k, x, advice.get(k)) for k, x in asked.items()}
        if values["temperature"] == 0:
            values |= {k: RANGES[k].default for k in PENALTIES if asked[k] is None}
        self.temperature = float(values["temperature"])
        self.top_k = max(0, int(values["top_k"]))
        self.top_p = float(values["top_p"])
        self.min_p = float(values["min_p"])
        self.repeat_penalty = float(values["repeat_penalty"])
        self.presence_penalty = float(values["presence_penalty"])
        self.frequency_penalty = float(values["frequency_penalty"])
        self.repeat_last_n = max(0, int(values["repeat_last_n"]))
        self.seed = secrets.randbelow(SEEDS) if seed is None else int(_value("seed", seed, None))
        self.sample = int(_value("sample", sample, None))
        self.accepted = 0
        self._window: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        self._arrays: tuple[I32, I32] | None = None
        self.more = More.of(**more)
        self.wide = self.more.asks  # the kernels' chain is not enough
        self._wide = Wide(self) if self.wide else None
        self._penalizes = self.chain.penalizes
        self._base = self._record()

    # ---- facts ---------------------------------------------------------------------------------

    @property
    def greedy(self) -> bool:
        """The first maximum is taken, so seed and draw do not matter."""
        return self.temperature == 0

    @property
    def chain(self) -> Chain:
        """The parameters as the kernel's reference takes them."""
        return Chain(
            self.temperature,
            self.top_k,
            self.top_p,
            self.min_p,
            self.repeat_penalty,
            self.frequency_penalty,
            self.presence_penalty,
        )

    @property
    def penalizes(self) -> bool:
        """Accepted tokens matter."""
        return self._penalizes or self._wide is not None

    @property
    def remembers(self) -> int:
        """Accepted tokens that can matter for the next choice."""
        return max(self.repeat_last_n, self.more.dry_last_n if self.wide else 0)

    def as_dict(self) -> dict[str, Any]:
        """Every effective value by its long name."""
        names = [k for k in RANGES if k not in ("seed", "sample")]
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self._wide is not None:
            found |= self.more.as_dict()
        return found

    def copy(self) -> Sampling:
        """An independent sampler in the same state, with the same seed."""
        new = Sampling.__new__(Sampling)
        new.__dict__.update(self.__dict__)
        new._window, new._counts = self._window.copy(), self._counts.copy()
        new._wide = self._wide.copy(new) if self._wide is not None else None
        return new

    # ---- state ---------------------------------------------------------------------------------

    def accept(self, id: int) -> None:
        """Count a token of the prompt or of the answer for the penalties."""
        self.accepted += 1
        if self._wide is not None:
            self._wide.accept(int(id))
        if self.repeat_last_n == 0:
            return
        self._arrays = None
        self._window.append(int(id))
        self._counts[int(id)] += 1
        if len(self._window) > self.repeat_last_n:
            old = self._window.popleft()
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def record(self, out: I64, row: int, position: int) -> None:
        """Fill one record of `kernels.sample` for logits row `row`, to draw the token at `position`.

        The record points into this object until the next `accept`.
        """
        out[:] = self._base
        out[_SLOT["row"]], out[_SLOT["position"]] = row, position
        if self._penalizes:
            ids, counts = self._seen()
            out[_SLOT["ids"]], out[_SLOT["counts"]] = ids.ctypes.data, counts.ctypes.data
            out[_SLOT["n_ids"]] = len(ids)

    def _record(self) -> I64:
        """What all records of this sampler have in common."""
        out = np.zeros(len(RECORD), np.int64)
        real = out.view(np.float64)
        for name, x in (
            ("temperature", self.temperature),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("repeat", self.repeat_penalty),
            ("frequency", self.frequency_penalty),
            ("presence", self.presence_penalty),
        ):
            real[_SLOT[name]] = x
        for name, n in (
            ("top_k", self.top_k),
            ("seed", self.seed),
            ("sample", self.sample),
            ("id", -1),
        ):
            out[_SLOT[name]] = n
        return out

    def _seen(self) -> tuple[I32, I32]:
        """Distinct ids of the window and how often each stands there."""
        if self._arrays is None:
            ids = np.fromiter(self._counts.keys(), np.int32, len(self._counts))
            self._arrays = ids, np.fromiter(self._counts.values(), np.int32, len(self._counts))
        return self._arrays

    # ---- the chain in numpy --------------------------------------------------------------------

    def candidates(self, logits: ArrayLike, history: Iterable[int] = ()) -> tuple[I64, F32]:
        """What the chain leaves before the draw.

        Args:
            logits: (n_vocab,) raw logits; -inf marks tokens that must not come.
            history: tokens accepted before, oldest first; those of `accept` are not looked at.

        Returns:
            ids and their logits over the temperature, by falling logit (by id where neither top_k
            nor top_p cuts). At temperature 0 all but the first maximum are -inf.

        Raises:
            RequestError: NaN or infinity among the logits, or nothing but -inf.
        """
        if self._wide is not None:
            return self._wide.candidates(usable(logits), list(history))
        last = list(history)[-self.repeat_last_n :] if self.repeat_last_n else []
        counts = Counter(last)
        ids = np.fromiter(counts.keys(), np.int32, len(counts))
        seen = ids, np.fromiter(counts.values(), np.int32, len(counts))
        return sample_bits.candidates(self.chain, usable(logits), *seen)

    def draw(self, logits: ArrayLike, u: float | None = None) -> int:
        """The id that the chain and the draw choose, after the tokens accepted so far.

        Args:
            logits: (n_vocab,) raw logits.
            u: in [0, 1); None: from seed, sample and the number of accepted tokens.
        """
        x = usable(logits)
        if u is not None and not 0 <= u < 1:
            raise RequestError("u is outside its range", expected="0 <= u < 1", got=u)
        if self._wide is not None:
            return self._wide.draw(x, u)
        kept, left = sample_bits.candidates(self.chain, x, *self._seen())
        if self.greedy:
            return int(kept[np.argmax(left)])
        if u is None:
            u = sample_bits.uniform(self.seed, self.sample, self.accepted)
        return sample_bits.draw(self.chain, len(x), kept, left, u)


_SLOT = {name: k for k, name in enumerate(RECORD)}


def usable(logits: ArrayLike) -> F32:
    """(n_vocab,) float32; RequestError for logits that no token can be chosen from."""
    x = np.asarray(logits, np.float32)
    if x.ndim != 1 or not len(x):
        raise RequestError("logits must be one row", expected="(n_vocab,)", got=x.shape)
    if not np.all(x < np.inf):
        raise RequestError("NaN or infinity among the logits", got=f"id {np.argmin(x < np.inf)}")
    if np.all(x == -np.inf):
        raise RequestError("every token is forbidden: all logits are -inf")
    return x


def _value(name: str, asked: Any, advice: Any) -> float:
    """What was asked for, else what the model file says, else the built-in value."""
    allowed = RANGES[name]
    for x in (asked, advice):
        if x is None:
            continue
        if not allowed.allows(x):
            raise RequestError(f"{name} is outside its range", expected=allowed, got=x)
        return float(x) if not allowed.whole else int(x)
    return allowed.default
