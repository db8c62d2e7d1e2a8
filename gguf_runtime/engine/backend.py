"""The two ways to compute: kernels on a tape, or plain numpy in float64 (`GGUF_RUNTIME_EXACT=1`).

Both take flat batches and give float32 logits; sessions, sampling and text do not know which one
they run on. One caller at a time has the turn: `with backend.turn(): …`.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.tree import PrefixTree
from gguf_runtime.engine.border import BORDER, machine_error
from gguf_runtime.engine.draft import Pace
from gguf_runtime.engine.step import Entry, Stepper
from gguf_runtime.errors import MachineError, RequestError
from quant.errors import QuantError

if TYPE_CHECKING:
    from gguf_runtime.engine.profile import Recorder
    from gguf_runtime.engine.sampler import Sampler
    from gguf_runtime.sampling import Sampling
    from quant.roofs import Limits

F32 = NDArray[np.float32]
Check = Callable[[], None]

HANDOVER_S = 100e-6  # how long one who had the turn stands back for those who wait


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


class Backend(ABC):
    """What sessions need; the subclasses compute.

    n_ctx      most positions of a sequence
    n_batch    most tokens of a step; n_outputs: most of them that can want logits
    n_sequences  most sequences of a step
    """

    n_vocab: int
    n_embd: int
    n_ctx: int
    n_batch: int
    n_outputs: int
    n_sequences: int
    speculates = True  # whether several tokens in one step are cheaper than one after the other

    def __init__(self) -> None:
        # Taken by `with` alone: a lock written in C is never left locked by Ctrl-C.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._dropped: deque[tuple[Positions, tuple[int, ...]]] = deque()
        self._tree: PrefixTree | None = None  # what requests have left behind
        self.pace = Pace()
        self._queue: set[int] = set()

    # ---- whose turn it is ----------------------------------------------------------------------

    def turn(self) -> AbstractContextManager[Any]:
        """The lock under which everything here is called.

        Raises:
            MachineError: this process was forked from the one that loaded the model.
            RequestError: the model is closed.
        """
        if self._pid != os.getpid():
            # A thread of the parent may hold the lock for ever, so it is not even looked at.
            raise MachineError(
                "a model cannot be used in a process that was forked after it was loaded",
                hint="load the model in the child, or start it with the spawn method",
            )
        if self._closed:
            raise closed()
        return self._lock

    def line_up(self) -> None:
        """Before a turn that is one of many: others who wait go first. `leave` afterwards."""
        if self._queue:
            time.sleep(HANDOVER_S)
        self._queue.add(threading.get_ident())

    def leave(self) -> None:
        """The turn is over, or was never had."""
        self._queue.discard(threading.get_ident())

    # ---- sequences -----------------------------------------------------------------------------

    @abstractmethod
    def sequence(self) -> Any:
        """An empty sequence."""

    def drop(self, sequence: Positions, ids: Sequence[int] = ()) -> None:
        """Give a sequence back. Takes no lock, so that finalizers and signal handlers may call it.

        With the ids that it holds it stays for prompts that begin alike, as far as it holds them.
        Its pages are free when somebody wants some.
        """
        self._dropped.append((sequence, tuple(ids)))

    def sweep(self) -> None:
        """Take back what was dropped; the caller has the turn."""
        while self._dropped:  # what is done is taken off afterwards: doing it again does no harm
            sequence, ids = self._dropped[0]
            self.keep(sequence, ids)
            sequence.close()
            self._dropped.popleft()

    # ---- prompts that begin alike --------------------------------------------------------------

    def match(self, ids: Sequence[int]) -> tuple[Any, int]:
        """What is known of the beginning of a prompt, but for its last token; needs the turn.

        Returns:
            A sequence that holds as much as can be gone on from, or None; and how long a beginning
            was read before: where that is more, a copy should be kept when it is read again.
        """
        self.sweep()
        if self._tree is None or len(ids) < 2:
            return None, 0
        return self._tree.match(ids), min(self._tree.known(ids), len(ids) - 1)

    @property
    def remembers(self) -> bool:
        """Whether what requests have read is kept for later ones."""
        return self._tree is not None

    def known(self, ids: Sequence[int]) -> int:
        """How much of a prompt `match` would find; needs the turn."""
        self.sweep()
        return 0 if self._tree is None or len(ids) < 2 else self._tree.longest(ids)

    def keep(self, sequence: Positions, ids: Sequence[int]) -> None:
        """Keep a copy of a sequence, as far as it holds these ids; needs the turn."""
        n = min(len(ids), sequence.length)
        if self._tree is not None and n and sequence.resumable(n):
            copy = sequence.fork()
            copy.kept = True
            copy.truncate(n)
            self._tree.keep(ids[:n], copy)

    def forget(self) -> None:
        """Let go of what requests have left behind."""
        with self.turn():
            self.sweep()
            if self._tree is not None:
                self._tree.clear()

    @property
    def used_pages(self) -> int:
        """Pages of the cache that sequences hold, those of `keep` too."""
        return 0

    def fitting(self, n: int) -> int:
        """Sequences of so many positions that the cache has memory for."""
        return self.n_sequences

    # ---- computing -----------------------------------------------------------------------------

    @abstractmethod
    def step(
        self,
        entries: Sequence[Entry],
        check: Check | None = None,
        recorder: Recorder | None = None,
    ) -> tuple[F32, F32]:
        """See `Stepper.step`."""

    def bar(self, logits: F32, bits: NDArray[np.uint8]) -> None:
        """Make tokens impossible whose bit is 0; little-endian bits in each byte."""
        allowed = np.unpackbits(bits, count=min(len(logits), 8 * len(bits)), bitorder="little")
        logits[: len(allowed)][allowed == 0] = -np.inf
        logits[len(allowed) :] = -np.inf

    @abstractmethod
    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        """Choose a token from a row of logits of the last step."""

    def pick_all(
        self, logits: F32, picks: Sequence[tuple[int, Sampling, int]]
    ) -> list[int | RequestError]:
        """Tokens for (row of the last step's logits, sampler, position), each by itself."""
        out: list[int | RequestError] = []
        for row, sampling, position in picks:
            try:
                out.append(self.pick(logits[row], sampling, position))
            except RequestError as e:
                out.append(e)
        return out

    @abstractmethod
    def reserve(self, sequence: Any, n: int) -> None:
        """Have room for n more positions; MachineError where the cache has none. Needs the turn."""

    def close(self) -> None:
        """Release threads and memory; idempotent, and nothing in a forked process."""
        if self._closed or self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._dropped.clear()
            self._release()

    @abstractmethod
    def _release(self) -> None:
        """Let go of threads and memory; called once."""


class KernelBackend(Backend):
    """Kernels, one step at a time."""

    def __init__(self, stepper: Stepper, sampler: Sampler) -> None:
        super().__init__()
        self._stepper: Stepper | None = stepper
        self._sampler: Sampler | None = sampler
        self._tree = PrefixTree()
        stepper.cache.evict = self._tree.evict
        graph = stepper.loaded.arch.graph
        self.n_vocab, self.n_embd = graph.n_vocab, graph.n_embd
        self.n_ctx = stepper.loaded.n_ctx
        self.n_batch, self.n_outputs = stepper.n_batch, stepper.n_outputs
        self.n_sequences = stepper.loaded.n_sequences

    @property
    def stepper(self) -> Stepper:
        """What runs batches; RequestError after `close`."""
        if self._stepper is None:
            raise closed()
        return self._stepper

    def sequence(self) -> Any:
        """An empty sequence."""
        with self.turn():
            return self.stepper.cache.sequence()

    @property
    def used_pages(self) -> int:
        """See `Backend.used_pages`."""
        with self.turn():
            self.sweep()
            return self.stepper.cache.used_pages

    def fitting(self, n: int) -> int:
        """See `Backend.fitting`."""
        cache = self.stepper.cache
        if cache.limit_bytes is None:
            return self.n_sequences
        return cache.limit_bytes // cache.plan.bytes_for(min(n, cache.n_ctx), self.n_batch)

    def step(
        self,
        entries: Sequence[Entry],
        check: Check | None = None,
        recorder: Recorder | None = None,
    ) -> tuple[F32, F32]:
        """See `Stepper.step`."""
        if self._dropped:
            self.sweep()
        try:
            return self.stepper.step(entries, check, recorder)
        except QuantError as e:
            raise machine_error(e) from e

    def pick(self, logits: F32, sampling: Sampling, position: int) -> int:
        """Choose a token by the kernels."""
        if self._sampler is None:
            raise closed()
        try:
            return self._sampler.pick(logits, sampling, position)
        except QuantError as e:
            raise machine_error(e) from e

    def pick_all(
        self, logits: F32, picks: Sequence[tuple[int, Sampling, int]]
    ) -> list[int | RequestError]:
        """Choose tokens by the kernels, all at once."""
        if len(picks) == 1:
            return super().pick_all(logits, picks)
        if self._sampler is None:
            raise closed()
        try:
            return self._sampler.pick_all(logits, picks)
        except QuantError as e:
            raise machine_error(e) from e

    def reserve(self, sequence: Any, n: int) -> None:
        """See `Backend.reserve`."""
        if self._dropped:
            self.sweep()
        sequence.reserve(n)

    def roofs(self) -> Limits:
        """What memory and registers can do with all threads, measured now."""
        from quant.roofs import measure

        with self.turn(), BORDER:
            return measure(self.stepper.loaded.pool)

    def _release(self) -> None:
        self.stepper.loaded.pool.close()
        self._stepper = self._sampler = self._tree = None


def closed() -> RequestError:
    """Why nothing can be asked of a closed model."""
    return RequestError("the model is closed", hint="load it again: Model(path)")
