"""`quant.pool`: every task once, rows in order, whatever happens to the threads meanwhile."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from quant import QuantError
from quant.link import callable_at
from quant.pool import Parts, Pool, Row
from quant.team import aligned

HERE = Path(__file__).parent
POISON = 0x5AFE5AFE
posix = pytest.mark.skipif(os.name != "posix", reason="signals, fork and affinity are POSIX")


class Books:
    """A tape of `tally` rows with what each must have done; a row's output lies between poison."""

    def __init__(self, pool, kernels, n_rows, most, rounds=0, parts=()):
        self.n_rows, self.most = n_rows, most
        self.counters = aligned(16 * (n_rows + 1))
        self.errors = aligned(1)
        self.out = np.full((n_rows, most + 2), POISON, np.int64)
        self.out[:, 1:-1] = 0
        self.expected = np.zeros((n_rows, most), np.int64)
        self.args = aligned(8 * n_rows).reshape(n_rows, 8)
        rows = []
        for i in range(n_rows):
            address = self.counters.ctypes.data + 128 * i
            self.args[i, :6] = (
                address, 0, address + 128, self.out[i, 1:].ctypes.data,
                self.errors.ctypes.data, rounds,
            )  # fmt: skip
            fn, args = kernels["tally"], int(self.args[i].ctypes.data)
            # A part counts its tasks from 0: they fall on the same outputs.
            rows.append(Parts([(fn, args, 0)] * 3) if i in parts else Row(fn, args, 0))
        self.parts = parts
        self.tape = pool.tape(rows)

    def expect(self, counts, first, last):
        """Set counts, and what rows first to last - 1 must find and leave."""
        totals = self.counters.reshape(-1, 16)[:, 0]
        plain = [0 if i in self.parts else c for i, c in enumerate(counts)]
        self.tape.set_tasks(plain)
        for i in self.parts:
            c = int(counts[i])
            split = [c // 3, 0, c - c // 3]
            self.tape.set_parts(i, split)
            if first <= i < last:
                for part in split:
                    self.expected[i, :part] += 1
        for i in range(first, last):
            if i not in self.parts:
                self.expected[i, : counts[i]] += 1
        self.args[:, 1] = totals[:-1]
        self.args[first + 1 : last, 1] += np.asarray(counts)[first : max(first, last - 1)]

    def step(self, counts, first=0, last=None):
        last = self.n_rows if last is None else last
        self.expect(counts, first, last)
        assert self.tape.run(first, last) == last

    def check(self):
        assert self.errors[0] == 0, "a row began before the one above it was done"
        assert (self.out[:, 1:-1] == self.expected).all(), "a task ran twice or not at all"
        assert (self.out[:, [0, -1]] == POISON).all()


def random_counts(rng, n_rows, most):
    """Counts as a step has them: many ones, some zeros, some large."""
    kind = rng.integers(0, 4, n_rows)
    return np.choose(kind, [1, 0, rng.integers(1, 9, n_rows), rng.integers(1, most + 1, n_rows)])


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
def test_every_task_runs_once_and_rows_in_order_over_thousands_of_runs(kernels, threads):
    rng = np.random.default_rng(threads)
    runs = 4000 if threads <= 2 else 800
    with Pool(threads, kernels) as pool:
        books = Books(pool, kernels, 12, 70, parts=(3, 11))
        for _ in range(runs):
            first, last = sorted(rng.integers(0, 13, 2))
            books.step(random_counts(rng, 12, 70), first, last)
    books.check()


@pytest.mark.parametrize("threads", [2, 4])
def test_tapes_may_come_and_go_between_runs(kernels, threads):
    rng = np.random.default_rng(7)
    with Pool(threads, kernels) as pool:
        kept = Books(pool, kernels, 5, 20)
        for _ in range(300):
            books = Books(pool, kernels, int(rng.integers(1, 40)), 9)
            books.step(random_counts(rng, books.n_rows, 9))
            books.check()
            kept.step(random_counts(rng, 5, 20))
        kept.check()
        assert len(pool.team.free) < 20


@posix
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
@pytest.mark.parametrize("threads", [2, 4])
def test_a_busy_neighbour_on_every_core_costs_time_only(kernels, threads):
    burn = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    cores = sorted(os.sched_getaffinity(0))[:2]
    others = [subprocess.Popen([sys.executable, "-c", burn, str(c)]) for c in cores]
    rng = np.random.default_rng(1)
    try:
        with Pool(threads, kernels) as pool:
            books = Books(pool, kernels, 20, 40, rounds=20)
            end = time.monotonic() + 2
            while time.monotonic() < end:
                books.step(random_counts(rng, 20, 40))
                time.sleep(rng.choice([0, 1e-4, 5e-3]))
    finally:
        for other in others:
            other.kill()
            other.wait()
    books.check()


@pytest.mark.parametrize("park", ["futex", "pthread", "yield"])
def test_workers_that_sleep_are_woken(kernels, park):
    if park == "futex" and sys.platform != "linux":
        pytest.skip("futexes are Linux's")
    rng = np.random.default_rng(2)
    with Pool(3, kernels, park=park) as pool:
        books = Books(pool, kernels, 3, 30, rounds=100)
        for _ in range(60):
            books.step(random_counts(rng, 3, 30))
            time.sleep(rng.choice([0, 1.9e-3, 2.1e-3, 6e-3]))
    books.check()


def test_idle_workers_use_no_processor_time(kernels):
    with Pool(4, kernels) as pool:
        Books(pool, kernels, 2, 5).step([5, 5])
        time.sleep(0.1)
        before = time.process_time()
        time.sleep(0.5)
        used = time.process_time() - before

    assert used < 0.1


def test_several_threads_share_the_work(kernels):
    out = aligned(4000)
    with Pool(2, kernels) as pool:
        tape = pool.tape([Row(kernels["note_thread"], int(out.ctypes.data), 4000)])
        for _ in range(20):
            tape.run()
            if len(set(out)) == 2:
                break

    assert set(out) == {1, 2}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_run_with_a_budget_stops_between_rows_and_goes_on(kernels, threads):
    rng = np.random.default_rng(3)
    stops = 0
    with Pool(threads, kernels) as pool:
        books = Books(pool, kernels, 30, 40, rounds=30)
        for _ in range(20):
            books.expect(rng.integers(0, 41, 30), 0, 30)
            at = 0
            while at < 30:
                before = at
                at = books.tape.run(at, budget_s=2e-5)
                assert at > before
                done = books.out[:, 1:-1].sum()
                stops += at < 30
                assert done == books.expected[:at].sum() + books.out[at:, 1:-1].sum()
    books.check()
    assert stops > 20


@pytest.mark.parametrize("threads", [2, 4])
def test_nothing_runs_any_more_after_an_early_stop(kernels, threads):
    rng = np.random.default_rng(4)
    with Pool(threads, kernels) as pool:
        books = Books(pool, kernels, 30, 40, rounds=30)
        for _ in range(100):
            books.expect(rng.integers(0, 41, 30), 0, 30)
            at = books.tape.run(budget_s=1e-5)
            frozen = books.out.copy()
            time.sleep(2e-4)
            assert (books.out == frozen).all()
            assert (books.out[at:] == 0)[:, 1:-1].all()
            books.out[:, 1:-1] = 0


def test_profile_times_every_row(kernels):
    with Pool(2, kernels) as pool:
        books = Books(pool, kernels, 4, 8, rounds=1)
        books.args[2, 5] = 20000
        books.expect([8] * 4, 0, 4)
        seconds = books.tape.profile()
        books.check()
        part = books.tape.profile(1, 3)

    assert seconds.shape == (4,)
    assert (seconds > 0).all()
    assert seconds.argmax() == 2
    assert part.argmax() == 1


def test_callers_from_several_threads_queue(kernels):
    with Pool(3, kernels) as pool:
        all_books = [Books(pool, kernels, 6, 20, rounds=5) for _ in range(4)]

        def steps(books, seed):
            rng = np.random.default_rng(seed)
            for _ in range(200):
                books.step(random_counts(rng, 6, 20))

        threads = [threading.Thread(target=steps, args=(b, i)) for i, b in enumerate(all_books)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for books in all_books:
        books.check()


def test_kernels_run_with_ieee_arithmetic_and_the_caller_gets_its_own_back(kernels):
    out = aligned(400)
    write = callable_at(kernels["write_state"])
    read = callable_at(kernels["read_state"])
    mine = aligned(1)
    read(int(mine.ctypes.data), 0, 0)
    # flush to zero: bits 15 and 6 of MXCSR, bit 24 of FPCR; bits 0 to 5 of MXCSR are sticky flags
    x86 = os.uname().machine == "x86_64" if hasattr(os, "uname") else True
    flush, flags = (0x8040, 0x3F) if x86 else (1 << 24, 0)
    try:
        write(int(mine[0]) | flush, 0, 0)
        for threads in (1, 2):
            with Pool(threads, kernels) as pool:
                pool.tape([Row(kernels["read_state"], int(out.ctypes.data), 400, 1)]).run()
            inside = set((out & ~flags).tolist())
            read(int(out.ctypes.data), 0, 0)
            after = int(out[0])
            assert inside == {0x1F80 if x86 else 0}
            assert after & flush == flush
    finally:
        write(int(mine[0]), 0, 0)


def test_counts_that_do_not_fit_are_refused(kernels):
    with Pool(1, kernels) as pool:
        tape = pool.tape([Row(kernels["tally"], 0, 0)] * 2)
        for bad in ([1], [1, -1], [1, 1 << 33]):
            with pytest.raises(QuantError, match="task counts"):
                tape.set_tasks(bad)
        with pytest.raises(QuantError, match="no such rows"):
            tape.run(1, 3)
    with pytest.raises(QuantError, match="threads"):
        Pool(0, kernels)


def test_a_row_can_get_another_kernel(kernels):
    out = aligned(4)
    with Pool(1, kernels) as pool:
        tape = pool.tape([Row(kernels["tally"], 0, 0), Row(kernels["tally"], 0, 3)])
        tape.set_fn(1, kernels["note_thread"], int(out.ctypes.data))
        tape.run()
        assert tape.tasks.tolist() == [0, 3]

    assert out.tolist() == [1, 1, 1, 0]
