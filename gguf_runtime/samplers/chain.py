"""The whole chain of llama.cpp's samplers for one sequence, in numpy, with the state that some keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import RequestError
from gguf_runtime.kernels import sample_bits
from gguf_runtime.samplers import steps as s
from gguf_runtime.samplers.parameters import More
from quant.elementary import log2
from quant.simd.elementary import exp_bits

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
LOW_BITS = (
    2.0**26
)  # of the draw's random number decide whether xtc acts; the draw goes by the high ones


class Owner(Protocol):
    """What the chain reads of `Sampling`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_last_n: int
    seed: int
    sample: int
    accepted: int
    more: More

    @property
    def greedy(self) -> bool:
        """The first maximum is taken."""

    @property
    def chain(self) -> sample_bits.Chain:
        """The parameters of the kernels' chain."""


class Wide:
    """State: tokens accepted, mirostat's mu, adaptive_p's average, and the last candidates."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        more = owner.more
        self._history: list[int] = []
        self._mu = 2 * more.mirostat_tau
        target, rest = more.adaptive_target, 1 - more.adaptive_decay
        self._sum, self._weight = target / rest, 1 / rest
        self._last: tuple[I64, F32] | None = None  # ids and probabilities of the last choice

    def copy(self, owner: Owner) -> Wide:
        """An independent one in the same state."""
        new = Wide.__new__(Wide)
        new.__dict__.update(self.__dict__)
        new._owner, new._history = owner, self._history.copy()
        return new

    def accept(self, token: int) -> None:
        """Count a token, and how likely it was if it was chosen here."""
        more, last = self._owner.more, self._last
        keep = max(more.dry_last_n, self._owner.repeat_last_n, 1)
        self._history.append(token)
        if len(self._history) > 2 * keep:
            del self._history[:-keep]
        self._last = None
        if last is None or not more.stateful:
            return
        at = np.flatnonzero(last[0] == token)
        if not len(at):
            return
        p = float(last[1][at[0]])
        if more.mirostat:
            surprise = -float(log2(max(p, float(s.TINY))))
            self._mu -= more.mirostat_eta * (surprise - more.mirostat_tau)
        else:
            self._sum = p + more.adaptive_decay * self._sum
            self._weight = 1 + more.adaptive_decay * self._weight

    def candidates(
        self, logits: F32, history: Sequence[int], u: float | None = None
    ) -> tuple[I64, F32]:
        """After the chain, before the draw; what `accept` counted comes before `history`."""
        o, more = self._owner, self._owner.more
        u = sample_bits.uniform(o.seed, o.sample, o.accepted) if u is None else u
        chance = u * LOW_BITS % 1.0
        seen = [*self._history, *history]
        ids: I64 = np.arange(len(logits))
        x = logits.copy()
        if more.logit_bias:
            ids, x = s.biased(ids, x, more.logit_bias)
            _possible(x)
        if more.mirostat:
            ids, x = s.temperature(ids, x, o.temperature, 0, 1)
            _possible(x)
            ids, x = s.mirostat(ids, x, more, self._mu, len(logits))
            self._last = ids, s.probabilities(x)
            return ids, x
        for name in more.samplers:
            ids, x = self._one(name, ids, x, seen, chance)
        if more.adaptive_target >= 0:
            p = s.probabilities(x)
            average = self._sum / self._weight
            target = min(1.0, max(0.0, 2 * more.adaptive_target - average))
            self._last = ids, p
            x = s.adapted(x, target)
        return ids, x

    def _one(
        self, name: str, ids: I64, x: F32, seen: Sequence[int], chance: float
    ) -> tuple[I64, F32]:
        o, more = self._owner, self._owner.more
        keep = more.min_keep
        if name == "penalties":
            if not o.chain.penalizes or not o.repeat_last_n:
                return ids, x
            counts = Counter(seen[-o.repeat_last_n :])
            full = np.full(int(ids.max()) + 1, np.float32(0))
            full[ids] = x
            known = np.fromiter(counts.keys(), np.int32, len(counts))
            often = np.fromiter(counts.values(), np.int32, len(counts))
            return ids, sample_bits.penalized(o.chain, full, known, often)[ids]
        if name == "dry":
            return s.dry(ids, x, more, seen)
        if name == "top_n_sigma":
            return s.top_n_sigma(ids, x, more.top_n_sigma)
        if name == "top_k":
            return s.top_k(ids, x, o.top_k)
        if name == "typical_p":
            return s.typical(ids, x, more.typical_p, keep)
        if name == "top_p":
            return s.top_p(ids, x, o.top_p, keep)
        if name == "min_p":
            return s.min_p(ids, x, o.min_p, keep)
        if name == "xtc":
            return s.xtc(ids, x, more.xtc_probability, more.xtc_threshold, keep, chance)
        return s.temperature(ids, x, o.temperature, more.dynatemp_range, more.dynatemp_exponent)

    def draw(self, logits: F32, u: float | None) -> int:
        """The candidate at which the weights pass u times their sum."""
        o = self._owner
        u = sample_bits.uniform(o.seed, o.sample, o.accepted) if u is None else u
        ids, x = self.candidates(logits, (), u)
        if o.greedy and o.more.adaptive_target < 0:
            return int(ids[np.lexsort((ids, -x))[0]])
        _possible(x)
        with np.errstate(invalid="ignore"):
            e = exp_bits(x - x.max())
        running = np.add.accumulate(e.astype(np.float64))
        able = np.flatnonzero(e > 0)
        passed = able[running[able] > u * running[-1]]
        return int(ids[passed[0] if len(passed) else able[-1]])


def _possible(x: F32) -> None:
    """RequestError where biases and temperature leave no token to choose."""
    top = float(x.max())
    if top == -np.inf:
        raise RequestError(
            "no token is allowed here", got="a logit_bias that forbids every one that may come"
        )
    if not np.isfinite(top):
        raise RequestError(
            "a logit is too large to choose by",
            hint="take a smaller logit_bias, or more temperature",
        )
