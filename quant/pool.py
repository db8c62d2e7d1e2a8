"""The runner: threads that walk a tape of rows in native code.

    pool = Pool(threads=2)
    tape = pool.tape([Row(fn, args, tasks=64), Parts([(fn_a, args_a, 40), (fn_b, args_b, 24)])])
    tape.run()                         # all rows, in order, each on all threads
    tape.set_tasks(new_counts)         # before the next step
    at = tape.run(first=at, budget_s=0.05)     # returns early, at a row that nobody has begun

A kernel is called as fn(args, task, thread); tasks of a row run in any order and on any thread,
rows one after the other. Workers enter native code once and leave it at `close()`; without work
they spin for 20 us, yield, and sleep after 2 ms. See `pool_kernels` for how rows are handed over.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quant import jit, system
from quant import pool_kernels as native
from quant.errors import QuantError
from quant.team import I64, Team, aligned, tag

CLAIMS_PER_THREAD = 4  # chunks of a row that one thread takes on average
MAX_THREADS = 1024
MAX_TASKS = native.MASK - 1

_ROW = native.ROW_BYTES // 8
_FN, _ARGS, _COUNT, _CHUNK = (x // 8 for x in (native.FN, native.ARGS, native.COUNT, native.CHUNK))
_CLAIM, _DONE = native.CLAIM // 8, native.DONE // 8


class Row(NamedTuple):
    """One kernel over a range of tasks; chunk 0: chosen from the count."""

    fn: int
    args: int
    tasks: int = 1
    chunk: int = 0


class Parts(NamedTuple):
    """Several (fn, args, tasks) that share one range of tasks, so that they run side by side."""

    parts: Sequence[tuple[int, int, int]]
    chunk: int = 0


class Pool:
    """Threads for kernels; the calling thread is one of them.

    Args:
        threads: how many, the caller included.
        kernels: addresses from `jit.load`, with `pool_kernels.SPECS` among them; loaded if absent.
        notice: told of what is slower than it should be while loading.
        park: how idle threads sleep, see `system.describe`.
    """

    def __init__(
        self,
        threads: int,
        kernels: Mapping[jit.Spec, int] | None = None,
        *,
        notice: jit.Notice | None = None,
        park: str | None = None,
    ) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise QuantError(
                "no such number of threads", expected=f"1 to {MAX_THREADS}", got=threads
            )
        if kernels is None:
            kernels = jit.load(native.SPECS, notice=notice)
        self.threads = threads
        self.team = Team(threads, kernels, park)
        # Also runs when the interpreter ends, before the code of the kernels could go away.
        self._finalizer = weakref.finalize(self, self.team.stop)

    def tape(self, rows: Sequence[Row | Parts]) -> Tape:
        """A tape of these rows; see `Tape`."""
        return Tape(self, rows)

    def close(self) -> None:
        """End the threads; idempotent. A run that another thread leads is finished first."""
        self._finalizer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Tape:
    """Rows in native memory. Not for two threads at once, except `run`, which queues."""

    def __init__(self, pool: Pool, rows: Sequence[Row | Parts]) -> None:
        self._pool = pool  # lives as long as its tapes
        self._team = team = pool.team
        self._threads = pool.threads
        self._memory = self._take(len(rows))
        self._rows = self._memory[: len(rows) * _ROW].reshape(len(rows), _ROW)
        self._tables: dict[int, I64] = {}
        self._fixed = np.array([row.chunk for row in rows], np.int64)
        self._counts = np.zeros(len(rows), np.int64)
        for i, row in enumerate(rows):
            if isinstance(row, Parts):
                table = aligned(1 + 3 * len(row.parts))
                table[0] = len(row.parts)
                table[2::3], table[3::3] = [p[0] for p in row.parts], [p[1] for p in row.parts]
                self._tables[i] = table
                self.set_fn(i, team.parts, int(table.ctypes.data))
                self._counts[i] = self._first_tasks(i, [p[2] for p in row.parts])
            else:
                self.set_fn(i, row.fn, row.args)
                self._counts[i] = row.tasks
        self.set_tasks(self._counts)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def tasks(self) -> I64:
        """Task counts by row, a copy."""
        return self._counts.copy()

    def set_tasks(self, counts: ArrayLike) -> None:
        """Set the task count of every row: (rows,) integers, 0 leaves a row out."""
        new = np.asarray(counts, np.int64)
        if new.shape != self._counts.shape or ((new < 0) | (new > MAX_TASKS)).any():
            raise QuantError("task counts do not fit the tape", expected=f"{len(self)} counts >= 0")
        self._counts = new.copy()
        even = -(-new // (CLAIMS_PER_THREAD * self._threads))
        self._rows[:, _CHUNK] = np.where(self._fixed > 0, self._fixed, np.maximum(even, 1))
        self._rows[:, _COUNT] = new  # in no epoch until the next run

    def set_parts(self, row: int, counts: Sequence[int]) -> None:
        """Set the task counts of the parts of a row, and with them its own."""
        n = self._first_tasks(row, counts)
        self._counts[row] = self._rows[row, _COUNT] = n
        if not self._fixed[row]:
            self._rows[row, _CHUNK] = max(1, -(-n // (CLAIMS_PER_THREAD * self._threads)))

    def set_fn(self, row: int, fn: int, args: int | None = None) -> None:
        """Set the kernel of a row, and its arguments if given."""
        self._rows[row, _FN] = fn
        if args is not None:
            self._rows[row, _ARGS] = args

    def run(self, first: int = 0, last: int | None = None, budget_s: float = 0.0) -> int:
        """Run rows first to last - 1 on all threads.

        Args:
            first: the row to begin with.
            last: the row after the last one; the end of the tape unless given.
            budget_s: stop before a row that would begin later than this; 0 runs all of them.

        Returns:
            The row to go on with; `last` when all are done. No task is running any more.

        Raises:
            QuantError: the pool is closed, or belongs to the process that this one was forked from.
        """
        return self._run(first, last, budget_s, None)

    def profile(self, first: int = 0, last: int | None = None) -> NDArray[np.float64]:
        """Run rows and return the seconds of each, as the leading thread saw it."""
        last = len(self) if last is None else last
        times = aligned(len(self) + 1)
        self._run(first, last, 0.0, times)
        seconds: NDArray[np.float64] = (
            np.diff(times[: last - first + 1]) / system.ticks_per_second()
        )
        return seconds

    def _run(self, first: int, last: int | None, budget_s: float, times: I64 | None) -> int:
        team = self._team
        last = len(self) if last is None else last
        if not 0 <= first <= last <= len(self):
            raise QuantError("no such rows", expected=f"0 to {len(self)}", got=f"{first} to {last}")
        self._check()
        budget = max(1, int(budget_s * system.ticks_per_second())) if budget_s > 0 else 0
        with team.lock:
            self._check()
            epoch = team.next_epoch()
            if self._threads > 1:
                rows = self._rows[first:last]
                np.add(self._counts[first:last], tag(epoch), out=rows[:, _COUNT])
                rows[:, _CLAIM] = tag(epoch)
                rows[:, _DONE] = 0
            at = 0 if times is None else int(times.ctypes.data)
            return team.go(epoch, int(self._memory.ctypes.data), first, last, budget, at)

    def _check(self) -> None:
        if self._team.pid != os.getpid():
            # A lock of the parent may be held here for ever: nothing of the pool is touched.
            raise QuantError(
                "the threads of a pool do not exist in a forked process",
                hint="make the pool in the child, or start it with the spawn method",
            )
        if self._team.closed:
            raise QuantError("the pool is closed")

    def _first_tasks(self, row: int, counts: Sequence[int]) -> int:
        table = self._tables[row]
        if len(counts) != table[0] or min(counts, default=0) < 0:
            raise QuantError("task counts do not fit the parts", expected=f"{table[0]} counts >= 0")
        ends = np.cumsum(counts, dtype=np.int64)
        table[1::3] = ends - np.asarray(counts, np.int64)
        return int(ends[-1]) if len(ends) else 0

    def _take(self, rows: int) -> I64:
        size = max(1, rows) * _ROW
        with self._team.free_lock:
            free = self._team.free
            fits = [(len(m), i) for i, m in enumerate(free) if size <= len(m) <= 4 * size]
            return free.pop(min(fits)[1]) if fits else aligned(size)

    def __del__(self, pid: Callable[[], int] = os.getpid) -> None:
        # After a fork a thread of the parent may hold the lock for ever.
        if hasattr(self, "_memory") and self._team.pid == pid():
            with self._team.free_lock:
                self._team.free.append(self._memory)
