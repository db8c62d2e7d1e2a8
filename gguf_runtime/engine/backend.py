"""The two ways to compute: kernels on a tape, or everything from plain numpy in float64 (`GGUF_RUNTIME_EXACT=1`).

Both take flat batches and give float32 logits; sessions, sampling and text do not know which one they run on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.step import Entry, Stepper

if TYPE_CHECKING:
    from gguf_runtime.engine.sampler import Sampler
    from gguf_runtime.graph.exact import Exact, ExactSequence
    from gguf_runtime.sampling import Sampling

F32 = NDArray[np.float32]


class Positions(Protocol):
    """A sequence of either kind."""

    length: int

    def resumable(self, n: int) -> bool:
        """Whether it can go on after `truncate(n)`."""

    def truncate(self, n: int) -> None:
        """Forget positions from n on."""

    def fork(self) -> Any:
        """A sequence with the same past."""

    def close(self) -> None:
        """Give its memory back."""


class Backend(Protocol):
    """What sessions need."""

    lock: threading.RLock
    n_vocab: int
    n_embd: int
    n_ctx: int
    n_batch: int
    n_outputs: int

    def sequence(self) -> Any:
        """An empty sequence."""

    def step(self, entries: Sequence[Entry], check: Callable[[], None] | None = None) -> tuple[F32, F32]:
        """See `Stepper.step`."""

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        """Choose a token from a row of logits of the last step."""

    def drop(self, sequence: Positions) -> None:
        """Give a sequence back later, from a finalizer."""

    def close(self) -> None:
        """Release threads and memory."""


class KernelBackend:
    """Kernels, one step at a time, under one lock."""

    def __init__(self, stepper: Stepper, sampler: Sampler) -> None:
        self.lock = threading.RLock()
        self.stepper, self.sampler = stepper, sampler
        graph = stepper.loaded.arch.graph
        self.n_vocab, self.n_embd = graph.n_vocab, graph.n_embd
        self.n_ctx = stepper.loaded.n_ctx
        self.n_batch, self.n_outputs = stepper.n_batch, stepper.n_outputs
        self._dropped: deque[Positions] = deque()

    def sequence(self) -> Any:
        return self.stepper.cache.sequence()

    def step(self, entries: Sequence[Entry], check: Callable[[], None] | None = None) -> tuple[F32, F32]:
        while self._dropped:
            self._dropped.pop().close()
        return self.stepper.step(entries, check)

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        return self.sampler.pick(logits, sampling, position)

    def roofs(self) -> tuple[float, float]:
        """Measured now: bytes per second from memory, int8 multiply-adds per second, all threads."""
        from quant.roofs import measure

        return measure(self.stepper.loaded.pool)

    def drop(self, sequence: Positions) -> None:
        self._dropped.append(sequence)

    def close(self) -> None:
        with self.lock:
            self.stepper.loaded.pool.close()


class _ExactPositions:
    """`ExactSequence` with the names that sessions use."""

    def __init__(self, inner: ExactSequence) -> None:
        self.inner = inner

    @property
    def length(self) -> int:
        return len(self.inner)

    def resumable(self, n: int) -> bool:
        return n <= self.length

    def truncate(self, n: int) -> None:
        self.inner.truncate(n)

    def fork(self) -> _ExactPositions:
        return _ExactPositions(self.inner.fork())

    def close(self) -> None:
        self.inner.truncate(0)


class ExactBackend:
    """Float64 numpy: slow, simple, the truth for tests."""

    def __init__(self, exact: Exact, n_ctx: int) -> None:
        self.lock = threading.RLock()
        self.exact = exact
        self.n_vocab, self.n_embd = exact.graph.n_vocab, exact.graph.n_embd
        self.n_ctx, self.n_batch, self.n_outputs = n_ctx, 64, 64

    def sequence(self) -> Any:
        return _ExactPositions(self.exact.sequence())

    def step(self, entries: Sequence[Entry], check: Callable[[], None] | None = None) -> tuple[F32, F32]:
        logits, hidden = [], []
        for e in entries:
            sequence: Any = e.sequence
            l, h = self.exact.forward(sequence.inner, list(e.ids), list(e.outputs))
            logits.append(l)
            hidden.append(h)
        if check is not None:
            check()
        out = np.concatenate(logits), np.concatenate(hidden)
        return out[0].astype(np.float32), out[1].astype(np.float32)

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        from gguf_runtime.engine.sampler import pick_plain

        return pick_plain(logits, sampling, position)

    def drop(self, sequence: Positions) -> None:
        sequence.close()

    def close(self) -> None:
        """Nothing to release."""
