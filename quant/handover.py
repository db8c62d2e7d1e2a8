"""How long threads take from one row of a tape to the next: what every row of a step costs beside its work."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from quant import jit
from quant.jit import kernel
from quant.simd import v

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.pool import Pool, Tape

LOOPS = 4000  # of a task, about 5 us: long enough that every thread takes one
ROWS = 500
RUNS = 15  # in turns, of which the median counts


@kernel
def busy() -> KernelFn:
    """args: out i64 [threads][8]. Task: multiplications one after the other."""

    def busy(args: int, task: int, thread: int) -> None:
        x = v.ld_i64(args + thread * 64)
        for _ in range(LOOPS):
            x = x * 6364136223846793005 + 1442695040888963407
        v.st_i64(args + thread * 64, x)

    return busy


SPECS = (busy.spec(),)


def measure(pool: Pool) -> float:
    """Seconds that a row takes longer when every thread has a task than when one thread has one."""
    from quant.pool import Row

    address = jit.load(SPECS)[SPECS[0]]
    out = np.zeros(8 * pool.threads, np.int64)
    args = int(out.ctypes.data)
    alone, shared = (pool.tape([Row(address, args, n, 1)] * ROWS) for n in (1, pool.threads))
    differences = [_seconds(shared) - _seconds(alone) for _ in range(RUNS)]
    return max(0.0, statistics.median(differences)) / ROWS


def _seconds(tape: Tape) -> float:
    begin = time.perf_counter()
    tape.run()
    return time.perf_counter() - begin
