"""Exceptions from signals, at any moment: nothing is lost, locked or changed by a bit."""

import os
import random
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.tiny import ids_of

ROUNDS = 150
PROMISE_S = 0.2  # after Ctrl-C in a prefill
FACTOR = 5  # of the promise, on machines that do other things too

posix = pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX")


def script(text, *args, seconds=300):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@posix
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_exceptions_at_any_moment_lose_no_page_and_change_no_bit(gemma, pages):
    """Window layers, copies on write, truncating and forking, all cut off somewhere."""

    def strike(number, frame):
        raise KeyboardInterrupt

    def some_work():
        with gemma.session() as s:
            s.feed(ids_of(100))
            with s.fork() as other:
                other.feed(ids_of(30, 1))
                s.truncate(70)
                s.feed(ids_of(90, 2))
                other.feed([9])
        gemma.complete("Hello", raw=True, max_tokens=3, temperature=0, stop=["x"])

    before = pages(gemma)
    expected = gemma.logits(ids_of(200), "last")
    kept = gemma.session()
    kept.feed(ids_of(70))
    dice, struck = random.Random(5), 0
    old = signal.signal(signal.SIGALRM, strike)
    try:
        for _ in range(ROUNDS):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-5, 0.02))
                    some_work()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                struck += 1
    finally:
        signal.signal(signal.SIGALRM, old)
    kept.feed(ids_of(200)[70:])
    kept.truncate(199)
    last = kept.feed(ids_of(200)[199:])
    kept.close()

    assert struck > ROUNDS // 10
    assert pages(gemma) == before
    assert np.array_equal(last.view(np.uint32), expected[0].view(np.uint32))
    assert np.array_equal(gemma.logits(ids_of(200), "last"), expected)


PREFILL = """
    import os, signal, sys, threading, time
    import numpy as np
    from gguf_runtime import Model

    m = Model(sys.argv[1], threads=2, context=int(sys.argv[2]))
    n, limit = int(sys.argv[3]), float(sys.argv[4])
    ids = [4 + k * 7 % (m.info.n_vocab - 4) for k in range(n)]
    expected = m.logits(ids[:64], "last")
    with m.session() as s:
        s.feed(ids[:32])
        for delay in (0.0, 0.03, 0.1):
            sent = []

            def send():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(delay, send)
            try:
                timer.start()
                s.feed(ids[32:])
                timer.join()
                time.sleep(1)  # the signal may still be on its way
                raise SystemExit("the prompt was read before the signal came")
            except KeyboardInterrupt:
                took = time.perf_counter() - sent[0]
            assert took < limit, took
            assert len(s) == 32, len(s)
            pages = m.backend.used_pages
            assert pages == len(m.backend.stepper.cache.arenas), pages
        last = s.feed(ids[32:64])
        assert np.array_equal(last, expected[0])
    assert m.backend.used_pages == 0
    stream = m.stream(m.detokenize(ids[:3000]), raw=True, max_tokens=5)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        next(stream)
        raise SystemExit("no signal")
    except KeyboardInterrupt:
        pass
    assert stream.result.finish_reason == "interrupted"
    m.backend.forget()
    assert m.backend.used_pages == 0
    assert np.array_equal(m.logits(ids[:64], "last"), expected)
    m.close()
    print("well")
"""


@posix
def test_ctrl_c_in_a_long_prompt_returns_at_once_and_the_session_goes_on(model_path):
    path = model_path("smollm2")

    assert script(PREFILL, path, 4096, 4000, FACTOR * PROMISE_S) == ["well"]


FORK = """
    import os, sys, threading, warnings
    from gguf_runtime import MachineError, Model

    m = Model(sys.argv[1], threads=2)
    session = m.session()
    session.feed([5, 6, 7])
    stream = m.stream("Hello", raw=True, max_tokens=50, temperature=0)
    next(stream)
    chat = m.chat()
    go, stop = threading.Event(), threading.Event()

    def busy():  # somebody holds the lock while the process forks
        with m.backend.turn():
            go.set()
            stop.wait(60)

    holder = threading.Thread(target=busy)
    holder.start()
    go.wait()
    pid = os.fork()
    if pid == 0:
        calls = (
            lambda: m.complete("Hello"), lambda: m.logits([5]), m.session, m.chat,
            lambda: session.feed([5]), lambda: session.truncate(0), session.fork,
            lambda: next(stream), lambda: chat.send("Hi"),
        )
        code = 0
        for call in calls:
            try:
                call()
                code = 1
            except MachineError as e:
                code = code or (0 if "forked" in str(e) else 2)
        m.tokenize("Hello")
        session.close(), stream.close(), chat.close(), m.close()
        del session, stream, chat, m
        sys.stdout.flush()
        sys.exit(code)  # with everything that ends a process
    done = os.waitpid(pid, 0)[1]
    stop.set()
    holder.join()
    session.feed([5])
    for _ in stream:
        pass
    m.close()
    print("code", os.waitstatus_to_exitcode(done))
"""


@posix
def test_a_forked_process_gets_an_error_and_never_hangs(tmp_path):
    from tests.tiny import with_template

    path = with_template(tmp_path / "m.gguf")

    assert script(FORK, path, seconds=120) == ["code", "0"]


MULTIPROCESSING = """
    import multiprocessing, sys
    from gguf_runtime import MachineError, Model

    def ask(k):
        try:
            return m.complete("Hello", raw=True, max_tokens=2).text
        except MachineError:
            return "refused"

    def load(k):
        with Model(sys.argv[1], threads=2) as own:
            return own.complete("Hello", raw=True, max_tokens=4, temperature=0).text

    m = Model(sys.argv[1], threads=2)
    here = m.complete("Hello", raw=True, max_tokens=4, temperature=0).text
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(ask, range(4)) == ["refused"] * 4
        assert pool.map(load, range(4)) == [here] * 4
    print("well")
"""


@posix
def test_a_forked_process_can_load_a_model_of_its_own():
    from tests.tiny import QWEN3

    assert script(MULTIPROCESSING, QWEN3, seconds=120) == ["well"]
