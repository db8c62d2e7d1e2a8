"""One step of the model: a flat batch of tokens in, logits of the tokens that want them out.

A batch is entries, each the next tokens of one sequence; a prompt, a chunk of a prompt and one token of each of eight
chats are all the same thing. Results do not depend on how tokens are batched or chunked, by a single bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pool import Cache
from gguf_runtime.cache.pool import Sequence as CacheSequence
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.errors import RequestError
from gguf_runtime.graph.rows import EmbedRow
from gguf_runtime.graph.schedule import SPAN, Heads, Items, Run, schedule

if TYPE_CHECKING:
    from gguf_runtime.engine.profile import Recorder

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

BUDGET_S = 0.03  # a native call returns about so often, so that signals and deadlines are seen


@dataclass(frozen=True, slots=True)
class Entry:
    """The next tokens of a sequence, and which of them want logits (indices into `ids`, ascending)."""

    sequence: CacheSequence
    ids: Sequence[int]
    outputs: Sequence[int] = ()


class Stepper:
    """Runs batches on a loaded model. One caller at a time."""

    def __init__(self, loaded: Loaded, cache: Cache) -> None:
        self.loaded, self.cache = loaded, cache
        self._embed = next(r for r in loaded.plan.rows if isinstance(r, EmbedRow))
        self._x = loaded.buffers.view(self._embed.out)
        self._table = loaded.embedding()
        self._logits = loaded.buffers.view(loaded.plan.logits)
        self._hidden = loaded.buffers.view(loaded.plan.hidden)
        self._items: dict[tuple[object, ...], Items] = {}
        self.recorder: Recorder | None = None  # while a profile is made

    @property
    def n_batch(self) -> int:
        """Most tokens of a step."""
        return self.loaded.n_batch

    @property
    def n_outputs(self) -> int:
        """Most tokens of a step that can want logits."""
        return self.loaded.n_outputs

    def step(self, entries: Sequence[Entry], check: Callable[[], None] | None = None) -> tuple[F32, F32]:
        """Run a batch.

        Args:
            entries: at least one token each, `n_batch` in all, `n_outputs` outputs in all.
            check: called about every 30 ms; what it raises leaves every sequence as it was.

        Returns:
            (logits, hidden): float32 (outputs, n_vocab) and (outputs, n_embd) in the order of entries and tokens; views
            that the next step overwrites.

        Raises:
            RequestError: a context is full, or a key or value does not fit the cache type.
        """
        header = self.loaded.header
        runs: list[Run] = []
        outputs: list[int] = []
        at = 0
        for s, e in enumerate(entries):
            n, pos = len(e.ids), e.sequence.length
            e.sequence.reserve(n)
            header.pos[at : at + n] = np.arange(pos, pos + n)
            header.seq[at : at + n] = s
            for table, pages in zip(header.tables, e.sequence.tables, strict=True):
                table[s] = pages.ctypes.data
            runs.append(Run(at, n, pos))
            outputs += [at + k for k in e.outputs]
            at += n
        assert 0 < at <= self.n_batch, at
        assert len(outputs) <= self.n_outputs, len(outputs)
        header.outputs[: len(outputs)] = outputs
        self.loaded.ropes_until(max(r.pos + r.n for r in runs))
        self._look_up([i for e in entries for i in e.ids])
        items = [self._schedule(h, runs) for h in self.loaded.tape.heads]
        self._run(at, len(outputs), items, check)
        self._check_flags()
        for e in entries:
            e.sequence.advance(len(e.ids))
        return self._logits[: len(outputs)], self._hidden[: len(outputs)]

    def _run(
        self, tokens: int, outputs: int, items: list[Items], check: Callable[[], None] | None
    ) -> None:
        tape = self.loaded.tape.prepare(tokens, outputs, items)
        if self.recorder is not None:
            self.recorder.add(tape.profile(), tokens, outputs)
            return
        row, end = 0, len(tape)
        while row < end:
            row = tape.run(row, budget_s=BUDGET_S)
            if check is not None:
                check()

    def _look_up(self, ids: list[int]) -> None:
        """The embedding's rows, straight from the file."""
        rows = self._table.rows(np.asarray(ids, np.int64))
        x = self._x[: len(ids)]
        factor = np.float32(self._embed.factor)
        if factor == 1:
            x[:] = rows
        else:
            np.multiply(rows, factor, out=x)

    def _schedule(self, heads: Heads, runs: list[Run]) -> Items:
        """Items of a kind of attention; a decode step mostly finds those of the step before."""
        if any(r.n > 1 for r in runs):
            return schedule(heads, runs)
        low = [max(0, r.pos - heads.window + 1) // SPAN if heads.window else 0 for r in runs]
        key = (heads, *((r.first, a, r.pos // SPAN) for r, a in zip(runs, low, strict=True)))
        found = self._items.get(key)
        if found is None:
            if len(self._items) > 256:
                self._items.clear()
            found = self._items[key] = schedule(heads, runs)
        return found

    def _check_flags(self) -> None:
        flag = self.loaded.header.flag
        if flag.any():
            layer = int(np.flatnonzero(flag)[0])
            flag[:] = 0
            raise RequestError(
                f"a key or value of layer {layer} is not a number or does not fit the cache type",
                got=self.loaded.cache_type,
                hint="use --cache-type f32; if that does not help, the model file may be damaged",
            )
