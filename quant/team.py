"""The threads of a pool, their control block, and memory that outlives their last look at it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from quant import jit, system
from quant import pool_kernels as native
from quant.errors import QuantError
from quant.link import callable_at

I64 = NDArray[np.int64]

SPIN_S, SLEEP_AFTER_S = 20e-6, 2e-3


class Team:
    """Control block, threads and memory of a pool: what lives until the last thread has left."""

    def __init__(self, threads: int, kernels: Mapping[jit.Spec, int], park: str | None) -> None:
        self.pid = os.getpid()
        self.epoch = 0
        self.closed = False
        self.lock = threading.Lock()
        self.free: list[I64] = []  # memory of dropped tapes: late workers may still look at it
        self.free_lock = threading.RLock()  # a tape may be collected while another is made
        self.control = aligned(native.SCRATCH // 8 + 8 * threads)
        self.address = int(self.control.ctypes.data)
        words, self.kept = system.describe(park)
        for offset, value in words.items():
            self.control[offset // 8] = value
        self.parts = kernels[native.PARTS]
        self.lead = callable_at(kernels[native.SOLO if threads == 1 else native.LEAD])
        spins, yields = calibrate(callable_at(kernels[native.SPIN]), self.address)
        self.control[native.SPINS // 8], self.control[native.YIELDS // 8] = spins, yields
        work = callable_at(kernels[native.WORKER])
        self.threads = [
            threading.Thread(target=work, args=(self.address, i, 0), name=f"quant-{i}", daemon=True)
            for i in range(1, threads)
        ]
        for started, thread in enumerate(self.threads, 1):
            try:
                thread.start()
            except RuntimeError as error:
                self.threads = self.threads[: started - 1]
                self.stop()
                what = f"this system starts no more than {started} of {threads} threads"
                raise QuantError(what, hint=f"ask for {started} threads") from error

    def go(
        self, epoch: int, tape: int, first: int, last: int, budget: int = 0, times: int = 0
    ) -> int:
        """One run of rows whose words carry `tag(epoch)`; the row to go on with."""
        word = self.control
        slot = native.SLOTS // 8 + 8 * (epoch & 1)
        word[slot : slot + 3] = (tape, first, last)
        word[native.TAG // 8 : native.TAG // 8 + 3] = (epoch * 2, budget, times)
        # Ctrl-C strikes after calls: an epoch is used up by the call that announces it, or not at all.
        self.epoch = epoch
        self.lead(self.address, 0, 0)
        return int(word[native.NEXT // 8])

    def next_epoch(self) -> int:
        """The number of the next run."""
        # Never 0, and odd after even, so that neighbours use different slots also when it wraps.
        return self.epoch % (native.MASK - 1) + 1

    def stop(self) -> None:
        """Send the threads home and wait for them."""
        if self.closed or self.pid != os.getpid():  # after a fork the threads are not here
            return
        with self.lock:
            self.closed = True
            self.control[native.QUIT // 8] = 1
            self.go(self.next_epoch(), 0, 0, 0)
            for thread in self.threads:
                thread.join()


def tag(epoch: int) -> int:
    """An epoch in the upper half of a word."""
    return ((epoch << 32) + 2**63) % 2**64 - 2**63


def aligned(words: int) -> I64:
    """Zeros, beginning at a multiple of 128 bytes: two cache lines, which are fetched in pairs."""
    raw = np.zeros(words + 16, np.int64)
    skip = -int(raw.ctypes.data) % 128 // 8
    return raw[skip : skip + words]


_rounds: list[int] = []  # of spinning and yielding, on this machine


def calibrate(spin: Callable[[int, int, int], None], control: int) -> tuple[int, int]:
    """Rounds of spinning for 20 us and of yielding for 2 ms, measured once per process."""
    if not _rounds:
        for yielding, n, goal in ((0, 1000, SPIN_S), (1, 200, SLEEP_AFTER_S)):
            best = float("inf")
            for _ in range(3):  # the shortest: another process may take the core
                start = time.perf_counter()
                spin(control, n, yielding)
                best = min(best, time.perf_counter() - start)
            _rounds.append(max(1, int(goal * n / max(best, 1e-9))))
    return _rounds[0], _rounds[1]
