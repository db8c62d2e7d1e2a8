"""`quant.pool` from first to last: closing, forgetting, forking, ending, interrupting."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quant import QuantError
from quant.pool import Pool

HERE = Path(__file__).parent
posix = pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX")


def test_a_closed_pool_says_so(kernels):
    pool = Pool(2, kernels)
    tape = pool.tape([])
    tape.run()
    pool.close()
    pool.close()

    with pytest.raises(QuantError, match="closed"):
        tape.run()
    assert not any(t.is_alive() for t in pool.team.threads)


def test_a_forgotten_pool_ends_its_threads(kernels):
    pool = Pool(3, kernels)
    threads = pool.team.threads
    tape = pool.tape([])
    tape.run()
    del pool, tape
    gc.collect()

    assert not any(t.is_alive() for t in threads)


SCRIPT = """
import os, sys, signal, time
sys.path.insert(0, sys.argv[1])
import runner_kernels
from quant import QuantError, jit
from quant.pool import Pool, Row
from quant.team import aligned
import quant.pool_kernels as pk
spec = runner_kernels.note_thread.spec()
k = jit.load([*pk.SPECS, spec])
out = aligned(64)
pool = Pool(3, k)
tape = pool.tape([Row(k[spec], int(out.ctypes.data), 64)])
tape.run()
"""


def script(text):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT + text, str(HERE)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@posix
def test_a_forked_child_gets_an_error_and_never_hangs(kernels):
    done = script("""
pid = os.fork()
if pid == 0:
    try:
        tape.run()
    except QuantError as e:
        print(e)
    with Pool(2, k) as own:
        own.tape([Row(k[spec], int(out.ctypes.data), 64)]).run()
    pool.close()
    print("child ends")
    sys.stdout.flush()
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
tape.run()
print("parent goes on")
""")

    assert done.returncode == 0, done.stderr
    assert "do not exist in a forked process" in done.stdout
    assert [x for x in done.stdout.split("\n") if x][-3:] == ["child ends", "0", "parent goes on"]


@posix
def test_a_fork_while_another_thread_runs_a_tape_does_not_hang_the_child(kernels):
    done = script("""
import threading
threading.Thread(target=lambda: [tape.run() for _ in range(30000)], daemon=True).start()
time.sleep(0.05)
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        try:
            tape.run()
        except QuantError:
            sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
print("good")
""")

    assert done.stdout == "good\n", done.stderr


def test_a_program_may_end_without_closing_its_pool(kernels):
    done = script("print('end')")

    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@posix
def test_an_interrupt_arrives_between_budgets(kernels):
    done = script("""
long = pool.tape([Row(k[spec], int(out.ctypes.data), 64)] * 20000)
signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    while True:
        at = 0
        while at < len(long):
            at = long.run(at, budget_s=0.05)
except KeyboardInterrupt:
    print("interrupted")
tape.run()
pool.close()
""")

    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_system_without_threads_is_named_and_leaves_none_behind(kernels, monkeypatch):
    start, started = threading.Thread.start, []

    def limited(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(QuantError, match="no more than 3 of 5 threads"):
        Pool(5, kernels)

    assert not any(t.is_alive() for t in started)
