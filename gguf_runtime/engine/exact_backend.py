"""Exact arithmetic as a backend: float64 numpy, slow and simple (`GGUF_RUNTIME_EXACT=1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.backend import Backend, Check
from gguf_runtime.engine.step import Entry

if TYPE_CHECKING:
    from gguf_runtime.engine.profile import Recorder
    from gguf_runtime.graph.exact import Exact, ExactSequence
    from gguf_runtime.sampling import Sampling

F32 = NDArray[np.float32]


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


class ExactBackend(Backend):
    """Float64 numpy: slow, simple, the truth for tests."""

    speculates = False

    def __init__(self, exact: Exact, n_ctx: int, n_tokens: int) -> None:
        super().__init__()
        self.exact, self._n_tokens = exact, n_tokens
        self.n_vocab, self.n_embd = exact.graph.n_vocab, exact.graph.n_embd
        self.n_ctx, self.n_batch, self.n_outputs, self.n_sequences = n_ctx, 64, 64, 64

    def sequence(self) -> Any:
        """An empty sequence."""
        with self.turn():
            return _ExactPositions(self.exact.sequence())

    def step(
        self,
        entries: Sequence[Entry],
        check: Check | None = None,
        recorder: Recorder | None = None,
    ) -> tuple[F32, F32]:
        """See `Stepper.step`; nothing is recorded."""
        self.sweep()
        before = [(e.sequence, e.sequence.length) for e in entries]
        logits, hidden = [], []
        try:
            for e in entries:
                sequence: Any = e.sequence
                l, h = self.exact.forward(sequence.inner, list(e.ids), list(e.outputs))
                logits.append(l)
                hidden.append(h)
            if check is not None:
                check()
        except BaseException:
            for s, n in before:
                s.truncate(n)
            raise
        return np.concatenate(logits).astype(np.float32), np.concatenate(hidden).astype(np.float32)

    def reserve(self, sequence: Any, n: int) -> None:
        """There are no pages."""

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        """Choose a token in numpy."""
        from gguf_runtime.engine.sampler import pick_plain

        return pick_plain(logits[: self._n_tokens], sampling, position)

    def _release(self) -> None:
        """Nothing but memory, which goes with the object."""
