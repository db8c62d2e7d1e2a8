"""The rest of llama.cpp's samplers, in numpy: those that the kernels' chain does not hold.

Each takes and gives candidates, (ids, logits) in float32, in an order of its own. Logarithms and powers
are `quant`'s, so a choice is the same on every machine.
Source of order and defaults: llama.cpp. Checked: tests/golden/sampling, its own candidate sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.lanes import sum_bits
from quant.elementary import LN2, exp2, log2, pow
from quant.simd.elementary import exp_bits

if TYPE_CHECKING:
    from gguf_runtime.samplers.parameters import More

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Candidates = tuple[I64, F32]

TINY = np.float64(2.0**-1022)
PEAK, SHARPNESS, WIDTH = 5.0, 10.0, 0.3  # of adaptive_p's preference for likely tokens
MOST_EXPONENT = 88.7228391  # of e that float32 holds

# ---- what several need -----------------------------------------------------------------------------


def falling(ids: I64, x: F32) -> Candidates:
    """By falling logit, equal ones by id."""
    order = np.lexsort((ids, -x))
    return ids[order], x[order]


def probabilities(x: F32) -> F32:
    """Softmax."""
    with np.errstate(invalid="ignore"):
        e = exp_bits(x - x.max())
    p: F32 = e / sum_bits(e)
    return p


def ln(x: Any) -> NDArray[np.float64]:
    """Natural logarithm; of 0 that of the smallest normal number."""
    return log2(np.maximum(np.asarray(x, np.float64), TINY)) * LN2


def entropy(p: F32) -> float:
    """In nats."""
    q = p.astype(np.float64)
    return float(-(q * ln(q)).sum())


# ---- the samplers ----------------------------------------------------------------------------------


def biased(ids: I64, x: F32, biases: Mapping[int, float]) -> Candidates:
    """With the biases added."""
    out = x.copy()
    for i, b in biases.items():
        at = np.flatnonzero(ids == i)
        with np.errstate(over="ignore"):  # beyond float32: infinite
            out[at] = out[at] + np.float32(b)
    return ids, out


def top_n_sigma(ids: I64, x: F32, n: float) -> Candidates:
    """All stay; logits far below the maximum become -inf."""
    if n <= 0 or len(x) < 2:
        return ids, x
    finite = x[x > -np.inf].astype(np.float64)
    deviation = math.sqrt(float(((finite - finite.mean()) ** 2).mean()))
    low = np.float32(float(finite.max()) - n * deviation)
    return ids, np.where(x < low, np.float32(-np.inf), x)


def top_k(ids: I64, x: F32, k: int) -> Candidates:
    """The k likeliest."""
    if k <= 0:
        return ids, x
    ids, x = falling(ids, x)
    return ids[:k], x[:k]


def typical(ids: I64, x: F32, p: float, min_keep: int) -> Candidates:
    """Those whose surprise is nearest to the entropy."""
    if p >= 1:
        return ids, x
    ids, x = falling(ids, x)
    q = probabilities(x)
    far = np.abs(-ln(q) - entropy(q)).astype(np.float32)
    order = np.argsort(far, kind="stable")
    running = np.add.accumulate(q[order], dtype=np.float32)
    enough = (running > np.float32(p)) & (np.arange(1, len(q) + 1) >= min_keep)
    size = int(np.argmax(enough)) + 1 if enough.any() else len(q)
    kept = order[:size]
    return ids[kept], x[kept]


def top_p(ids: I64, x: F32, p: float, min_keep: int) -> Candidates:
    """The likeliest until they make up p."""
    if p >= 1:
        return ids, x
    ids, x = falling(ids, x)
    running = np.add.accumulate(probabilities(x), dtype=np.float32)
    enough = (running >= np.float32(p)) & (np.arange(1, len(x) + 1) >= min_keep)
    size = int(np.argmax(enough)) + 1 if enough.any() else len(x)
    return ids[:size], x[:size]


def min_p(ids: I64, x: F32, p: float, min_keep: int) -> Candidates:
    """Those that are at least so likely beside the likeliest."""
    if p <= 0 or not len(x):
        return ids, x
    low = np.float32(float(x.max()) + float(ln(p)))
    keep = x >= low
    if keep.sum() < max(1, min_keep):
        ids, x = falling(ids, x)
        keep = (x >= low) | (np.arange(len(x)) < max(1, min_keep))
    return ids[keep], x[keep]


def xtc(
    ids: I64, x: F32, probability: float, threshold: float, min_keep: int, chance: float
) -> Candidates:
    """Sometimes without all but the last of the likely ones."""
    if probability <= 0 or threshold > 0.5 or len(x) < 2 or chance > probability:
        return ids, x
    ids, x = falling(ids, x)
    likely = probabilities(x) >= np.float32(threshold)
    last = int(np.logical_and.accumulate(likely).sum()) - 1
    if last <= 0 or len(x) - last < min_keep:
        return ids, x
    return ids[last:], x[last:]


def temperature(ids: I64, x: F32, t: float, spread: float, exponent: float) -> Candidates:
    """Logits over the temperature; at 0 the first maximum alone stays finite."""
    if spread > 0:
        if len(x) < 2:
            return ids, x
        ids, x = falling(ids, x)
        low, high = max(0.0, t - spread), t + spread
        share = entropy(probabilities(x)) / float(ln(len(x)))
        t = low + (high - low) * (
            float(pow(share, exponent)) if share > TINY else float(exponent == 0)
        )
    if t > 0:
        with np.errstate(over="ignore"):
            return ids, x / np.float32(t)
    best = np.full_like(x, -np.inf)
    first = np.lexsort((ids, -x))[0]
    best[first] = x[first]
    return ids, best


def dry(ids: I64, x: F32, more: More, history: Sequence[int]) -> Candidates:
    """Less of what would go on with a run of tokens that was said before."""
    n = more.dry_last_n
    if more.dry_multiplier == 0 or more.dry_base < 1 or n <= 0:
        return ids, x
    back = [int(i) for i in history][-n:][::-1]  # the last token first
    if len(back) <= more.dry_allowed_length:
        return ids, x
    sequences = [*(b for b in more.dry_breakers if not isinstance(b, str)), *more.dry_ids]
    limit = _run_limit(back, sequences)
    if limit < more.dry_allowed_length:
        return ids, x
    runs: dict[int, int] = {}
    for k, length in enumerate(_common(back)):
        if k and min(length, limit) >= more.dry_allowed_length:
            token = back[k - 1]
            runs[token] = max(runs.get(token, 0), min(length, limit))
    single = {b[0] for b in sequences if len(b) == 1}
    base = more.dry_base
    most = int(MOST_EXPONENT / float(ln(base))) if base > 1.000001 else 0
    out = x.copy()
    for token, length in runs.items():
        if token in single:
            continue
        exponent = length - more.dry_allowed_length
        exponent = min(exponent, most) if most > 0 else exponent
        out[ids == token] -= np.float32(more.dry_multiplier * float(pow(base, exponent)))
    return ids, out


def _run_limit(back: Sequence[int], breakers: Sequence[tuple[int, ...]]) -> int:
    """Tokens behind the last breaker."""
    tails: dict[int, list[tuple[int, ...]]] = {}
    for b in breakers:
        if b:
            tails.setdefault(b[0], []).append(b[1:])
    for i, token in enumerate(back):
        fits = [
            len(tail)
            for tail in tails.get(token, ())
            if len(tail) <= i and all(back[i - 1 - j] == t for j, t in enumerate(tail))
        ]
        if fits:
            return i - max(fits)
    return len(back)


def _common(a: Sequence[int]) -> list[int]:
    """For every position, how many items from there on equal the beginning; in linear time."""
    z, left, right = [0] * len(a), 0, 0
    for i in range(1, len(a)):
        n = min(z[i - left], right - i) if i < right else 0
        while i + n < len(a) and a[n] == a[i + n]:
            n += 1
        z[i] = n
        if i + n > right:
            left, right = i, i + n
    return z


def mirostat(ids: I64, x: F32, more: More, mu: float, n_vocab: int) -> Candidates:
    """What a surprise of at most mu leaves, or (version 1) as many as would hold it."""
    ids, x = falling(ids, x)
    p = probabilities(x).astype(np.float64)
    if more.mirostat == 2:
        over = -log2(np.maximum(p, TINY)) > mu
        size = max(1, int(np.argmax(over)) if over.any() else len(x))
        return ids[:size], x[:size]
    i = np.arange(min(more.mirostat_m, len(x)) - 1)
    t = ln((i + 2) / (i + 1))
    b = ln(p[:-1][: len(i)]) - ln(p[1:][: len(i)])
    squares = float((t * t).sum())
    s = float((t * b).sum()) / squares if squares else 1.0
    e = s - 1
    below = 1 - float(pow(float(n_vocab), -e))
    k = 0.0
    if below and s and e * below > 0:
        k = float(exp2(min(1000.0, (mu + float(log2(e / below))) / s)))
    return ids[: max(1, int(min(k, len(x))))], x[: max(1, int(min(k, len(x))))]


def adapted(x: F32, target: float) -> F32:
    """Logits by how near a probability is to the target; what was forbidden stays so."""
    far = np.abs(probabilities(x) - np.float32(target)) / np.float32(WIDTH)
    near: F32 = np.float32(PEAK) - np.float32(SHARPNESS) * far * far / (np.float32(1) + far)
    return np.where(x == -np.inf, np.float32(-np.inf), near)
