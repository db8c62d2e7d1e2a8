"""The runner's native half: threads walk the rows of a tape, claiming chunks of tasks.

control   a block of int64 words, see the offsets below; what is written while others spin on it has
          128 bytes of its own
row       128 bytes: fn · args · count word · chunk | claim word · done           (second line at 64)
          count word = epoch << 32 | tasks, claim word = epoch << 32 | next task; done counts tasks
epoch     one per run. The host rewrites the three words of every row of a run before it begins, so
          a thread that lost its core during an older run finds another epoch, whichever of the
          words it has read before, and can neither claim nor wait on the wrong row.
order     a chunk is claimed by compare-and-swap; a row is done when its tasks are, not when all
          threads arrived; a thread that finds a row done skips to the row that the leader is in
stop      the leader closes the next row (next task = all ones) if nobody has begun it; then no task
          is running anywhere, and the epoch word becomes odd, which sends the waiting ones home

Addresses of the system's functions come in the control block: an object has no undefined symbols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.jit import kernel
from quant.simd import v

if TYPE_CHECKING:
    from quant.compile import KernelFn

# ---- control block, byte offsets
CLOCK, CLOCK_ID = 0, 8  # clock_gettime and its clock; with id -1 QueryPerformanceCounter
YIELD = 16  # sched_yield or SwitchToThread
PARK, WAIT, WAKE = 24, 32, 40  # how to sleep, one of the numbers below, and the functions for it
PARK_A, PARK_B = 48, 56  # futex: system call number; pthread: mutex, condition
PARK_LOCK, PARK_UNLOCK = 64, 72  # pthread_mutex_lock and unlock
SPINS, YIELDS = 80, 88  # rounds of spinning, then of yielding, before a thread goes to sleep
EPOCH = 128  # epoch * 2, + 1 when stopped
SLEEPERS, CURRENT, QUIT = 256, 384, 512
SLOTS = 640  # two slots of 64 bytes, by the epoch's last bit: tape, first row, row after the last
TAG, BUDGET, TIMES, NEXT = 768, 776, 784, 792  # the leader's: epoch word, ticks, array, result
SCRATCH = 896  # 64 bytes for each thread

# ---- row, byte offsets
ROW_BYTES = 128
FN, ARGS, COUNT, CHUNK, CLAIM, DONE = 0, 8, 16, 24, 64, 72

PARK_YIELD, PARK_FUTEX, PARK_OS_SYNC, PARK_ON_ADDRESS, PARK_PTHREAD = range(5)
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
MASK = 0xFFFFFFFF
STALE = -1


def ticks(control: int, thread: int) -> int:
    """The monotonic clock: nanoseconds, or the counter of Windows."""
    at = control + SCRATCH + 64 * thread
    fn = v.ld_i64(control + CLOCK)
    clock = v.ld_i64(control + CLOCK_ID)
    if clock < 0:
        v.call_os(fn, at, 0, 0, 0, 0, 0, 0)
        return v.ld_i64(at)
    v.call_os(fn, clock, at, 0, 0, 0, 0, 0)
    return v.ld_i64(at) * 1000000000 + v.ld_i64(at + 8)


def give_way(control: int) -> None:
    """Let another thread have the core."""
    v.call_os(v.ld_i64(control + YIELD), 0, 0, 0, 0, 0, 0, 0)


def park(control: int, thread: int, now: int) -> None:
    """Sleep until the epoch word is no longer `now`; may return early."""
    word = control + EPOCH
    kind = v.ld_i64(control + PARK)
    fn = v.ld_i64(control + WAIT)
    v.fetch_add(control + SLEEPERS, 1)
    # The system compares once more under its lock, so a wake-up in between is not lost.
    if v.fetch_add(word, 0) == now:
        if kind == PARK_FUTEX:
            number = v.ld_i64(control + PARK_A)
            v.call_os(fn, number, word, FUTEX_WAIT_PRIVATE, now & MASK, 0, 0, 0)
        elif kind == PARK_OS_SYNC:
            v.call_os(fn, word, now & MASK, 4, 0, 0, 0, 0)
        elif kind == PARK_ON_ADDRESS:
            at = control + SCRATCH + 64 * thread
            v.st_i64(at, now)
            v.call_os(fn, word, at, 4, MASK, 0, 0, 0)
        elif kind == PARK_PTHREAD:
            mutex = v.ld_i64(control + PARK_A)
            v.call_os(v.ld_i64(control + PARK_LOCK), mutex, 0, 0, 0, 0, 0, 0)
            while v.load_acq(word) == now:
                v.call_os(fn, v.ld_i64(control + PARK_B), mutex, 0, 0, 0, 0, 0)
            v.call_os(v.ld_i64(control + PARK_UNLOCK), mutex, 0, 0, 0, 0, 0, 0)
        else:
            give_way(control)
    v.fetch_add(control + SLEEPERS, -1)


def wake(control: int) -> None:
    """Wake whoever sleeps; the epoch word has been changed before."""
    if v.fetch_add(control + SLEEPERS, 0) > 0:
        word = control + EPOCH
        kind = v.ld_i64(control + PARK)
        fn = v.ld_i64(control + WAKE)
        if kind == PARK_FUTEX:
            number = v.ld_i64(control + PARK_A)
            v.call_os(fn, number, word, FUTEX_WAKE_PRIVATE, 1 << 30, 0, 0, 0)
        elif kind == PARK_OS_SYNC:
            v.call_os(fn, word, 4, 0, 0, 0, 0, 0)
        elif kind == PARK_ON_ADDRESS:
            v.call_os(fn, word, 0, 0, 0, 0, 0, 0)
        elif kind == PARK_PTHREAD:
            # Taking the mutex lets a thread that has just compared reach its wait.
            mutex = v.ld_i64(control + PARK_A)
            v.call_os(v.ld_i64(control + PARK_LOCK), mutex, 0, 0, 0, 0, 0, 0)
            v.call_os(v.ld_i64(control + PARK_UNLOCK), mutex, 0, 0, 0, 0, 0, 0)
            v.call_os(fn, v.ld_i64(control + PARK_B), 0, 0, 0, 0, 0, 0)


def work(row: int, epoch: int, thread: int) -> int:
    """Do tasks of a row until all are claimed; twice their number, + 1 if some were done here."""
    count = v.load_acq(row + COUNT)
    if (count >> 32) & MASK != epoch:
        return STALE
    n = count & MASK
    chunk = v.ld_i64(row + CHUNK)
    mine = 0
    claim = v.load_acq(row + CLAIM)
    while True:
        if (claim >> 32) & MASK != epoch:
            return STALE
        first = claim & MASK
        if first >= n:
            return 2 * n + mine
        last = first + chunk
        if last > n:
            last = n
        found = v.cas(row + CLAIM, claim, claim + (last - first))
        if found != claim:
            claim = found
            continue
        # From here to the addition below the host cannot rewrite this row.
        fn = v.ld_i64(row + FN)
        args = v.ld_i64(row + ARGS)
        for task in range(first, last):
            v.call(fn, args, task, thread)
        v.fetch_add(row + DONE, last - first)
        mine = 1
        claim = v.load_acq(row + CLAIM)


def await_row(control: int, row: int, n: int, tag: int) -> int:
    """Wait until n tasks are done: 1; or until the run is over or stopped: 0."""
    spins = v.ld_i64(control + SPINS)
    rounds = 0
    while v.load_acq(row + DONE) < n:
        if v.load_acq(control + EPOCH) != tag:
            return 0
        rounds += 1
        if rounds < spins:
            v.pause()
        else:
            give_way(control)
    return 1


def await_run(control: int, thread: int, seen: int) -> int:
    """Wait for a run other than `seen`; its epoch word."""
    spins = v.ld_i64(control + SPINS)
    limit = spins + v.ld_i64(control + YIELDS)
    rounds = 0
    while True:
        now = v.load_acq(control + EPOCH)
        if now != seen and now & 1 == 0:
            return now
        rounds += 1
        if rounds < spins:
            v.pause()
        elif rounds < limit:
            give_way(control)
        else:
            park(control, thread, now)


def follow(control: int, thread: int, tag: int) -> None:
    """A worker's part in one run."""
    epoch = (tag >> 1) & MASK
    slot = control + SLOTS + 64 * (epoch & 1)
    tape = v.load_acq(slot)
    k = v.load_acq(slot + 8)
    last = v.load_acq(slot + 16)
    # The slot is rewritten for the run after next: what was read is one run's if this one lasts.
    if v.load_acq(control + EPOCH) != tag:
        return
    while k < last:
        row = tape + k * ROW_BYTES
        did = work(row, epoch, thread)
        if did == STALE:
            return
        if did & 1 == 0 and v.load_acq(row + DONE) >= did >> 1:
            current = v.load_acq(control + CURRENT)
            k += 1
            if current > k:
                k = current
            continue
        if await_row(control, row, did >> 1, tag) == 0:
            return
        k += 1


@kernel
def worker() -> KernelFn:
    """`worker(control, thread, 0)`: serve runs until told to quit."""

    def body(control: int, thread: int, unused: int) -> None:
        state = v.fp_state()
        v.ieee()
        seen = unused
        while True:
            seen = await_run(control, thread, seen)
            if v.load_acq(control + QUIT) != 0:
                break
            follow(control, thread, seen)
        v.set_fp_state(state)

    return body


@kernel
def lead() -> KernelFn:
    """`lead(control, 0, 0)`: announce the run that the control block describes and take part."""

    def body(control: int, unused: int, thread: int) -> None:
        state = v.fp_state()
        v.ieee()
        tag = v.ld_i64(control + TAG)
        epoch = (tag >> 1) & MASK
        slot = control + SLOTS + 64 * (epoch & 1)
        tape = v.ld_i64(slot)
        k = v.ld_i64(slot + 8)
        last = v.ld_i64(slot + 16)
        budget = v.ld_i64(control + BUDGET)
        times = v.ld_i64(control + TIMES)
        start = unused
        if budget > 0 or times != 0:
            start = ticks(control, thread)
        if times != 0:
            v.st_i64(times, start)
        v.store_rel(control + CURRENT, k)
        v.store_rel(control + EPOCH, tag)
        wake(control)
        while k < last:
            row = tape + k * ROW_BYTES
            v.store_rel(control + CURRENT, k)
            did = work(row, epoch, thread)
            await_row(control, row, did >> 1, tag)
            k += 1
            if times != 0:
                times += 8
                v.st_i64(times, ticks(control, thread))
            if budget > 0 and k < last and ticks(control, thread) - start >= budget:
                # An empty row holds nobody up: others may be in the one behind it already.
                row += ROW_BYTES
                claim = epoch << 32
                if v.ld_i64(row + COUNT) & MASK != 0:
                    if v.cas(row + CLAIM, claim, claim | MASK) == claim:
                        v.store_rel(control + EPOCH, tag + 1)
                        break
        v.st_i64(control + NEXT, k)
        v.set_fp_state(state)

    return body


@kernel
def solo() -> KernelFn:
    """`solo(control, 0, 0)`: the same run without other threads; counts alone are read."""

    def body(control: int, unused: int, thread: int) -> None:
        state = v.fp_state()
        v.ieee()
        slot = control + SLOTS + 64 * ((v.ld_i64(control + TAG) >> 1) & 1)
        tape = v.ld_i64(slot)
        k = v.ld_i64(slot + 8)
        last = v.ld_i64(slot + 16)
        budget = v.ld_i64(control + BUDGET)
        times = v.ld_i64(control + TIMES)
        start = unused
        if budget > 0 or times != 0:
            start = ticks(control, thread)
        if times != 0:
            v.st_i64(times, start)
        while k < last:
            row = tape + k * ROW_BYTES
            fn = v.ld_i64(row + FN)
            args = v.ld_i64(row + ARGS)
            for task in range(v.ld_i64(row + COUNT) & MASK):
                v.call(fn, args, task, thread)
            k += 1
            if times != 0:
                times += 8
                v.st_i64(times, ticks(control, thread))
            if budget > 0 and k < last and ticks(control, thread) - start >= budget:
                break
        v.st_i64(control + NEXT, k)
        v.set_fp_state(state)

    return body


@kernel
def parts() -> KernelFn:
    """A row of several kernels: args -> count, then (first task, fn, args) each, ascending."""

    def body(args: int, task: int, thread: int) -> None:
        part = args + 8 + 24 * (v.ld_i64(args) - 1)
        while v.ld_i64(part) > task:
            part -= 24
        v.call(v.ld_i64(part + 8), v.ld_i64(part + 16), task - v.ld_i64(part), thread)

    return body


@kernel
def spin() -> KernelFn:
    """`spin(control, rounds, yielding)`: what one round of waiting costs."""

    def body(control: int, rounds: int, yielding: int) -> None:
        for _ in range(rounds):
            if yielding != 0:
                give_way(control)
            else:
                v.pause()

    return body


SPECS = tuple(factory.spec() for factory in (worker, lead, solo, parts, spin))
WORKER, LEAD, SOLO, PARTS, SPIN = SPECS
