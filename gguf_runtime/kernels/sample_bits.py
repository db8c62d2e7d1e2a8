"""The chain of samplers in numpy: the bits of `kernels.sample`, and what `Sampling` shows to callers.

Every function takes and returns float32; candidates are (ids, logits) in the order of the contract.
Checked: tests/golden/sampling against llama.cpp's own candidate sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.lanes import fold_bits, strips, sum_bits
from quant.simd.elementary import exp_bits

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

CHUNK = 256  # logits that share a maximum
PART = 16384  # logits of one task of `scan`

# What a record of the kernels holds, 8 bytes each; `id` and `state` are results.
RECORD = (
    "row", "temperature", "top_k", "top_p", "min_p", "repeat", "frequency", "presence",
    "seed", "sample", "position", "ids", "counts", "n_ids", "id", "state",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chain:
    """Parameters of the chain; each one's default switches it off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0

    @property
    def penalizes(self) -> bool:
        """Some penalty does something."""
        return self.repeat != 1 or self.frequency != 0 or self.presence != 0


def penalized(chain: Chain, logits: F32, ids: I32, counts: I32) -> F32:
    """(n_vocab,) with the penalties of distinct ids that stood `counts` times in the history."""
    out = logits.astype(np.float32)
    known = (ids >= 0) & (ids < len(out))
    ids, counts = ids[known], counts[known]
    x = out[ids]
    repeat = np.float32(chain.repeat)
    with np.errstate(all="ignore"):
        x = np.where(x > 0, x / repeat, x * repeat)
        by = counts.astype(np.float32) * np.float32(chain.frequency) + np.float32(chain.presence)
        out[ids] = x - by
    return out


def cut(chain: Chain, logits: F32) -> tuple[I64, F32]:
    """top_k, top_p and min_p: the ids that stay and their logits."""
    n = len(logits)
    ids: I64 = np.arange(n)
    logits = np.where(logits == 0, np.float32(0), logits)
    some = 0 < chain.top_k < n
    total: F32 | None = None
    if np.float32(chain.top_p) < 1 and not some:
        total = sum_bits(exp_bits(logits - logits.max()))
    if some or np.float32(chain.top_p) < 1:
        ids = np.argsort(-logits, kind="stable")
        ids = ids[: chain.top_k] if some else ids
    logits = logits[ids]
    if np.float32(chain.top_p) < 1:
        e = exp_bits(logits - logits[0])
        p = e / (sum_bits(e) if total is None else total)
        running = np.add.accumulate(p, dtype=np.float32)
        reached = np.flatnonzero(running >= np.float32(chain.top_p))
        size = int(reached[0]) + 1 if len(reached) else len(ids)
        ids, logits = ids[:size], logits[:size]
    keep = exp_bits(logits - logits.max()) >= np.float32(chain.min_p)
    if some or np.float32(chain.top_p) < 1:  # falling order: a beginning stays
        keep = np.logical_and.accumulate(keep)
        keep[0] = True
    return ids[keep], logits[keep]


def candidates(chain: Chain, logits: F32, ids: I32, counts: I32) -> tuple[I64, F32]:
    """The whole chain before the draw: ids and their logits over the temperature.

    At temperature 0 the first maximum keeps its logit and all others become -inf.
    """
    if chain.penalizes:
        logits = penalized(chain, logits, ids, counts)
    kept, x = cut(chain, np.asarray(logits, np.float32))
    if chain.temperature > 0:
        with np.errstate(over="ignore"):
            return kept, x / np.float32(chain.temperature)
    best = np.full_like(x, -np.inf)
    first = np.lexsort((kept, -x))[0]
    best[first] = x[first]
    return kept, best


def draw(chain: Chain, n_vocab: int, ids: I64, logits: F32, u: float) -> int:
    """The candidate at which the weights pass u (in [0, 1)) times their sum."""
    with np.errstate(invalid="ignore"):
        e = exp_bits(logits - logits.max())
    by_id = not 0 < chain.top_k < n_vocab and np.float32(chain.top_p) >= 1
    start = np.float64(0)
    if by_id and chain.temperature > 0:
        full = np.zeros(-(-n_vocab // CHUNK) * CHUNK, np.float32)
        full[ids] = e
        lanes = np.zeros((len(full) // CHUNK, 16), np.float32)
        for strip in strips(full.reshape(-1, CHUNK)).swapaxes(0, 1):
            lanes = lanes + strip
        chunks = fold_bits(lanes).astype(np.float64)
        before = np.concatenate([[0.0], np.add.accumulate(chunks)])
        target = u * before[-1]
        c = int(np.flatnonzero((chunks > 0) & (before[:-1] <= target))[-1])
        start = before[c]
        inside = ids // CHUNK == c
        ids, e = ids[inside], e[inside]
        running = np.add.accumulate(np.concatenate([[start], e.astype(np.float64)]))[1:]
    else:
        running = np.add.accumulate(e.astype(np.float64))
        target = u * running[-1]
    able = np.flatnonzero(e > 0)
    passed = able[running[able] > target]
    return int(ids[passed[0] if len(passed) else able[-1]])


def uniform(seed: int, sample: int, position: int) -> float:
    """Uniform in [0, 1) with 53 bits: Philox 4x32-10, key (seed, 0), counter (position, sample, 0, 0).

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    low = 0xFFFFFFFF
    x = philox((position & low, sample & low, 0, 0), (seed & low, seed >> 32 & low))
    return ((x[0] >> 5) * 67108864 + (x[1] >> 6)) / 9007199254740992


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox 4x32."""
    low = 0xFFFFFFFF
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ k, q & low, p >> 32 ^ d ^ m, p & low
        k, m = (k + 0x9E3779B9) & low, (m + 0xBB67AE85) & low
    return a, b, c, d
