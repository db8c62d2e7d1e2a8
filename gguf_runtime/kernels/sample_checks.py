"""Cases of the sampling kernels against `sample_bits`, as checks.py has them for the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels import sample
from gguf_runtime.kernels import sample_bits as bits
from gguf_runtime.kernels.checks import Guarded, Run, guarded, run_all
from gguf_runtime.kernels.sample_bits import Chain
from gguf_runtime.kernels.slots import row

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

DEFAULT = Chain(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
CHAINS = (
    DEFAULT,
    replace(DEFAULT, temperature=0.0),
    replace(DEFAULT, top_k=1),
    replace(DEFAULT, top_k=5, min_p=0.0, top_p=1.0),
    replace(DEFAULT, top_k=0),
    replace(DEFAULT, top_k=0, top_p=0.999, temperature=3.0, min_p=0.0),
    replace(DEFAULT, top_k=0, top_p=1.0),
    replace(DEFAULT, top_k=0, top_p=1.0, min_p=0.0, temperature=2.5),
    replace(DEFAULT, top_k=700, top_p=1.0, min_p=0.0, temperature=5.0),
    replace(DEFAULT, repeat=1.3, frequency=0.2, presence=-0.4),
    replace(DEFAULT, temperature=0.0, repeat=2.0),
)


def record(chain: Chain, ids: I32, counts: I32, number: int = 0) -> I64:
    """One record: row 0, seed 7, sample 1, position `number`."""
    some = chain.penalizes
    return row(
        bits.RECORD, temperature=float(chain.temperature), top_k=chain.top_k,
        top_p=float(chain.top_p), min_p=float(chain.min_p), repeat=float(chain.repeat),
        frequency=float(chain.frequency), presence=float(chain.presence), seed=7, sample=1,
        position=number, ids=ids, counts=counts, n_ids=len(ids) if some else 0,
    )  # fmt: skip


class Case:
    """A row of logits with the memory that the two kernels need for some records."""

    def __init__(self, logits: F32, records: I64) -> None:
        n, r = len(logits), len(records)
        self.before, self.logits, self.records = logits, guarded(logits), records
        self.maxima = Guarded(r, sample.n_chunks(n))
        self.states = Guarded(r, sample.n_parts(n), dtype=np.int64)
        self.scratch = Guarded(sample.scratch_bytes(n), dtype=np.uint8)
        self.args = row(
            sample.ARGS, logits=self.logits.array, stride=0, n_vocab=n, records=records,
            maxima=self.maxima.array, states=self.states.array, scratch=self.scratch.array,
        )  # fmt: skip

    def expect_scan(self) -> None:
        """Fill in by numpy what `scan` leaves."""
        n = len(self.before)
        padded = np.full(self.maxima.array.shape[1] * bits.CHUNK, -np.inf, np.float32)
        padded[:n] = self.before
        self.maxima.array[:] = padded.reshape(-1, bits.CHUNK).max(1)
        for part in range(sample.n_parts(n)):
            x = self.before[part * bits.PART : (part + 1) * bits.PART]
            state = sample.BAD * bool(np.any(~(x < np.inf)))
            self.states.array[:, part] = state + sample.MASKED * bool(np.any(x == -np.inf))

    def intact(self) -> bool:
        """Nothing outside was written, and the logits are as before."""
        parts = (self.logits, self.maxima, self.states, self.scratch)
        same = np.array_equal(self.logits.array.view(np.int32), self.before.view(np.int32))
        return same and all(p.intact() for p in parts)


def logits_of(kind: str, n: int) -> F32:
    """Rows that are hard in one way each."""
    rng = np.random.default_rng(n)
    x = rng.normal(0, 3, n).astype(np.float32)
    if kind == "ties":
        x = np.round(x)
        x[::7] *= -0.0
    elif kind == "masked":
        x[rng.permutation(n)[: n - n // 8]] = -np.inf
    elif kind == "rising":
        x = np.sort(x)
    elif kind == "flat":
        x[:] = 1.5
    return x


def check_scan(run: Run) -> str:
    """Odd lengths; NaN and infinities in several places."""
    for n in (1, 17, 256, 16384 + 300):
        for special in (None, np.nan, np.inf, -np.inf):
            x = logits_of("", n)
            if special is not None:
                x[n - 1] = special
            none = np.zeros(0, np.int32)
            got, want = (Case(x, record(DEFAULT, none, none)[None]) for _ in range(2))
            want.expect_scan()
            run_all(run, got.args, sample.n_parts(n))
            if not np.array_equal(got.states.array, want.states.array):
                return f"states differ, n = {n}, {special}"
            if special in (None, -np.inf) and not np.array_equal(
                got.maxima.array, want.maxima.array
            ):
                return f"maxima differ, n = {n}"
            if special is None and not got.intact():
                return "wrote past a buffer"
    return ""


def check_pick(run: Run) -> str:
    """Every chain on every kind of row."""
    for n in (1, 40, 1000, 3001):
        for kind in ("", "ties", "masked", "rising", "flat"):
            complaint = pick_case(run, logits_of(kind, n), CHAINS)
            if complaint:
                return f"{complaint}, n = {n}, {kind or 'random'}"
    return ""


def pick_case(run: Run, x: F32, chains: tuple[Chain, ...]) -> str:
    """One row of logits, one record per chain."""
    rng = np.random.default_rng(5)
    ids = rng.permutation(len(x))[:30].astype(np.int32)
    ids = np.concatenate([ids, [-1, len(x)]]).astype(np.int32)
    counts = rng.integers(1, 5, len(ids)).astype(np.int32)
    records = np.stack([record(c, ids, counts, number) for number, c in enumerate(chains)])
    case = Case(x, records)
    case.expect_scan()
    run_all(run, case.args, len(chains))
    for number, chain in enumerate(chains):
        if not np.any(x > -np.inf):
            want = -1
        else:
            kept, logits = bits.candidates(chain, x, ids, counts)
            if chain.temperature == 0:
                want = int(kept[np.argmax(logits)])
            else:
                u = bits.uniform(7, 1, number)
                want = bits.draw(chain, len(x), kept, logits, u)
        if records[number, bits.RECORD.index("id")] != want:
            got = records[number, bits.RECORD.index("id")]
            return f"chose {got}, not {want}, with {chain}"
    if not np.array_equal(case.logits.array.view(np.int32), x.view(np.int32)):
        return "the logits were not restored"
    borders = (case.logits, case.maxima, case.states, case.scratch)
    return "" if all(p.intact() for p in borders) else "wrote past a buffer"
