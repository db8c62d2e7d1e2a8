"""Choosing tokens by the sampling kernels, on the runner's threads.

Two rows: `scan` reads the logits once, a part per task, and `pick` finishes the chain of each record. Without kernels
(exact arithmetic) the same chain runs in numpy and gives the same token for the same logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import RequestError
from gguf_runtime.kernels import sample
from gguf_runtime.kernels.sample_bits import RECORD, uniform
from quant.jit import Spec
from quant.memory import allocate
from quant.pool import Pool, Row

if TYPE_CHECKING:
    from gguf_runtime.sampling import Sampling

F32 = NDArray[np.float32]

SPECS = (sample.scan.spec(), sample.pick.spec())


class Sampler:
    """The sampling rows of one model, for at most `n_rows` rows of logits at a time."""

    def __init__(
        self, pool: Pool, kernels: Mapping[Spec, int], n_vocab: int, n_rows: int = 1
    ) -> None:
        self._n_vocab = n_vocab
        self._parts = sample.n_parts(n_vocab)
        step = -(-sample.scratch_bytes(n_vocab) // 4096) * 4096
        self._scratch = allocate(step * pool.threads)
        self._records = np.zeros((n_rows, len(RECORD)), np.int64)
        self._maxima = np.zeros(n_rows * sample.n_chunks(n_vocab), np.float32)
        self._states = np.zeros(n_rows * self._parts, np.int64)
        self._args = np.zeros(len(sample.ARGS), np.int64)
        values = {
            "n_vocab": n_vocab,
            "records": self._records.ctypes.data,
            "maxima": self._maxima.ctypes.data,
            "states": self._states.ctypes.data,
            "scratch": self._scratch.ctypes.data,
            "scratch_step": step,
        }
        for name, value in values.items():
            self._args[sample.ARGS.index(name)] = value
        address = int(self._args.ctypes.data)
        rows = [Row(kernels[SPECS[0]], address, self._parts), Row(kernels[SPECS[1]], address, 1)]
        self._tape = pool.tape(rows)
        self._set = 1  # rows that the tape is set for; 0 while that changes

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        """The token at `position` for one contiguous row of logits; RequestError where none can be chosen."""
        (chosen,) = self.pick_all(logits[None], [(0, sampling, position)])
        if isinstance(chosen, RequestError):
            raise chosen
        return chosen

    def pick_all(
        self, logits: F32, picks: Sequence[tuple[int, Sampling, int]]
    ) -> list[int | RequestError]:
        """Tokens for (row, sampler, position); rows of logits (n, width) are contiguous."""
        n = len(picks)
        if not n:
            return []
        if any(sampling.wide for _, sampling, _ in picks):
            return [self._apart(logits, pick) for pick in picks]
        records = self._records
        for k, (row, sampling, position) in enumerate(picks):
            sampling.record(records[k], row, position)
        self._args[_LOGITS] = logits.ctypes.data
        self._args[_STRIDE] = logits.strides[0]
        if n != self._set:
            self._set = 0
            self._tape.set_tasks((n * self._parts, n))
            self._set = n
        self._tape.run()
        wrong = sample.BAD | sample.NOTHING
        return [
            i if not state & wrong else no_token(bad=bool(state & sample.BAD))
            for i, state in records[:n, _RESULT].tolist()
        ]

    def _apart(self, logits: F32, pick: tuple[int, Sampling, int]) -> int | RequestError:
        """One choice by itself, in numpy where the kernels' chain is not enough."""
        row, sampling, position = pick
        if not sampling.wide:
            return self.pick_all(logits, [pick])[0]
        try:
            return pick_plain(logits[row, : self._n_vocab], sampling, position)
        except RequestError as e:
            return e


_LOGITS, _STRIDE = sample.ARGS.index("logits"), sample.ARGS.index("stride")
_RESULT = slice(RECORD.index("id"), RECORD.index("state") + 1)


def pick_plain(logits: F32, sampling: Sampling, position: int) -> int:
    """The same choice in numpy."""
    if not (logits < np.inf).all():  # NaN or +inf
        raise no_token(bad=True)
    if not np.isfinite(logits).any():
        raise no_token(bad=False)
    return sampling.draw(logits, uniform(sampling.seed, sampling.sample, position))


def no_token(*, bad: bool) -> RequestError:
    """Why no token could be chosen."""
    if bad:
        return RequestError(
            "the model gave logits that are not numbers",
            hint="the file may be damaged: gguf-runtime inspect FILE",
        )
    return RequestError("no token is allowed here", got="logits that are all -infinity")
