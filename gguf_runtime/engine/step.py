"""One step of the model: a flat batch of tokens in, logits of the tokens that want them out.

A batch is entries, each the next tokens of one sequence; a prompt, a chunk of a prompt and one
token of each of eight chats are all the same thing. Results do not depend on how tokens are batched
or chunked, by a single bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pool import Cache
from gguf_runtime.cache.pool import Sequence as CacheSequence
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.errors import RequestError
from gguf_runtime.graph.schedule import Heads, Items, Run, schedule
from gguf_runtime.kernels.attention import SPAN

if TYPE_CHECKING:
    from gguf_runtime.engine.profile import Recorder

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

BUDGET_S = 0.03  # a native call returns about so often, so that signals and deadlines are seen
PROFILED_ROWS = 16  # rows of such a call while a profile is made


class Entry(NamedTuple):
    """The next tokens of a sequence, and which of them want logits (indices, ascending)."""

    sequence: CacheSequence
    ids: Sequence[int]
    outputs: Sequence[int] = ()


class Stepper:
    """Runs batches on a loaded model. One caller at a time."""

    def __init__(self, loaded: Loaded, cache: Cache) -> None:
        self.loaded, self.cache = loaded, cache
        self._logits = loaded.buffers.view(loaded.plan.logits)
        self._hidden = loaded.buffers.view(loaded.plan.hidden)
        self._items: dict[tuple[object, ...], list[Items]] = {}

    @property
    def n_batch(self) -> int:
        """Most tokens of a step."""
        return self.loaded.n_batch

    @property
    def n_outputs(self) -> int:
        """Most tokens of a step that can want logits."""
        return self.loaded.n_outputs

    def step(
        self,
        entries: Sequence[Entry],
        check: Callable[[], None] | None = None,
        recorder: Recorder | None = None,
    ) -> tuple[F32, F32]:
        """Run a batch.

        Args:
            entries: at least one token each, `n_batch` in all, `n_outputs` outputs in all.
            check: called about every 30 ms; what it raises leaves every sequence as it was.
            recorder: told how long every row took.

        Returns:
            (logits, hidden): float32 (outputs, n_vocab) and (outputs, n_embd) in the order of
            entries and tokens; views that the next step overwrites.

        Raises:
            RequestError: a context is full, or a key or value does not fit the cache type.
        """
        try:
            runs, outputs = self._describe(entries)
            tokens = runs[-1].first + runs[-1].n
            tape = self.loaded.tape.prepare(tokens, outputs, self._schedule(runs))
            if recorder is None:
                row, end = 0, len(tape)
                while row < end:
                    row = tape.run(row, budget_s=BUDGET_S)
                    if check is not None:
                        check()
            else:
                for row in range(0, len(tape), PROFILED_ROWS):
                    end = min(row + PROFILED_ROWS, len(tape))
                    recorder.add(row, tape.profile(row, end))
                    if check is not None:
                        check()
                recorder.count(tokens, outputs, runs)
            if self.loaded.header.flag.any():
                raise self._misfit()
        except BaseException:
            for e in entries:  # pages that were meant for these tokens
                e.sequence.truncate(e.sequence.length)
            raise
        for e in entries:
            e.sequence.advance(len(e.ids))
        return self._logits[:outputs], self._hidden[:outputs]

    def _describe(self, entries: Sequence[Entry]) -> tuple[list[Run], int]:
        """Write the header of a batch; its runs and the number of outputs."""
        self.loaded.file.check_unchanged()  # the embedding's rows come from it
        header = self.loaded.header
        header.flag.fill(0)
        runs: list[Run] = []
        outputs = at = 0
        for s, e in enumerate(entries):
            n, pos = len(e.ids), e.sequence.length
            assert n, "an entry without tokens"
            e.sequence.reserve(n)
            if n == 1:
                header.ids[at] = e.ids[0]
                header.pos[at] = pos
            else:
                header.ids[at : at + n] = e.ids
                header.pos[at : at + n] = np.arange(pos, pos + n)
            header.seq[at : at + n] = s
            for table, address in zip(header.tables, e.sequence.addresses, strict=True):
                table[s] = address
            for k in e.outputs:
                header.outputs[outputs] = at + k
                outputs += 1
            runs.append(Run(at, n, pos))
            at += n
        assert 0 < at <= self.n_batch, at
        assert outputs <= self.n_outputs, outputs
        self.loaded.ropes_until(max(r.pos + r.n for r in runs))
        return runs, outputs

    def _schedule(self, runs: list[Run]) -> list[Items]:
        """Items of every kind of attention; a decode step mostly finds those of the step before."""
        kinds, threads = self.loaded.tape.heads, self.loaded.pool.threads
        if any(r.n > 1 for r in runs):
            return [schedule(heads, runs, threads) for heads in kinds]
        key = tuple((r.first, r.pos // SPAN, *(_first_span(h, r.pos) for h in kinds)) for r in runs)
        found = self._items.get(key)
        if found is None:
            if len(self._items) > 256:
                self._items.clear()
            found = self._items[key] = [schedule(heads, runs, threads) for heads in kinds]
        return found

    def _misfit(self) -> RequestError:
        flag = self.loaded.header.flag
        layer = int(np.flatnonzero(flag)[0])
        return RequestError(
            f"a key or value of layer {layer} is not a number or does not fit the cache type",
            got=self.loaded.cache_type,
            hint="use --cache-type f32; if that does not help, the model file may be damaged",
        )


def _first_span(heads: Heads, pos: int) -> int:
    return max(0, pos - heads.window + 1) // SPAN if heads.window else 0
