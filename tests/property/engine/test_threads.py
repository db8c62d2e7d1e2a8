"""Several threads and one model: their requests share steps, and nobody waits for one who does not come."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from gguf_runtime import Model, RequestError
from gguf_runtime.engine.job import AHEAD
from tests.property.engine.test_interruptions import script
from tests.tiny import QWEN3

posix = pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX")
HANG_S = 120  # a thread that takes so long hangs
N_THREADS, N_CALLS = 8, 20


def run(*works):
    """Each in a thread of its own, to the end; what they raised is raised here."""
    raised = []

    def guarded(work):
        try:
            work()
        except BaseException as e:  # noqa: BLE001 - raised in the test
            raised.append(e)

    threads = [threading.Thread(target=guarded, args=(w,), daemon=True) for w in works]
    for t in threads:
        t.start()
    deadline = time.monotonic() + HANG_S
    for t in threads:
        t.join(max(0.0, deadline - time.monotonic()))
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if raised:
        raise raised[0]


def question(thread, call):
    return {
        "prompt": f"{'abcdefgh'[thread] * (1 + call)} {call}",
        "raw": True,
        "max_tokens": 3 + (thread * 7 + call * 5) % 20,
        "seed": thread * 100 + call,
        "repeat_penalty": 1.0 + 0.1 * (call % 3),
    }


def test_calls_from_many_threads_give_the_texts_of_single_ones(qwen, pages):
    before, found = pages(qwen), {}

    def caller(thread):
        def work():
            for call in range(N_CALLS):
                found[thread, call] = qwen.complete(**question(thread, call)).ids

        return work

    run(*(caller(k) for k in range(N_THREADS)))

    assert pages(qwen) == before
    assert len(found) == N_THREADS * N_CALLS
    for (thread, call), ids in found.items():
        assert ids == qwen.complete(**question(thread, call)).ids


def test_threads_share_steps(small, monkeypatch):
    widths, step = [], small.backend.step

    def counting(entries, *rest):
        widths.append(len(entries))
        return step(entries, *rest)

    monkeypatch.setattr(small.backend, "step", counting)
    options = {"raw": True, "max_tokens": 200, "temperature": 1.5, "stop_ids": []}

    run(*(lambda k=k: small.complete("xyz"[k], seed=k, **options) for k in range(3)))

    assert max(widths) == 3
    assert len(widths) < 3 * 200 * 0.9


def test_streams_in_one_thread_share_steps_and_change_nothing(qwen, monkeypatch):
    options = {"raw": True, "max_tokens": 30, "seed": 3}
    alone = [qwen.complete(p, **options).text for p in ("Hello", "abc")]
    steps, step = [], qwen.backend.step

    def counting(entries, *rest):
        steps.append(len(entries))
        return step(entries, *rest)

    monkeypatch.setattr(qwen.backend, "step", counting)
    streams = [qwen.stream(p, **options) for p in ("Hello", "abc")]
    texts = ["", ""]
    live = [0, 1]
    while live:
        for k in list(live):
            piece = next(streams[k], None)
            if piece is None:
                live.remove(k)
            else:
                texts[k] += piece

    assert texts == alone
    assert len(steps) <= 35


def test_a_reader_that_does_not_come_pauses_its_own_answer_only(small):
    """It is answered a little ahead, then waits; what it gets afterwards is what it would have got."""
    options = {"raw": True, "max_tokens": 100, "temperature": 0, "stop_ids": []}
    expected = small.complete("Hello", **options)
    slow = small.stream("Hello", **options)
    next(slow)

    others = [small.complete("other", **options) for _ in range(2)]

    job = slow._generation.job
    assert [o.usage.generated for o in others] == [100, 100]
    assert len(job.ids) - job.n_prompt - job.taken <= AHEAD + 8
    assert slow.result.usage.generated < 5
    list(slow)
    assert slow.result.ids == expected.ids


def test_what_was_answered_ahead_and_not_read_is_not_part_of_the_answer(small):
    options = {"raw": True, "max_tokens": 100, "temperature": 0, "stop_ids": []}
    slow = small.stream("Hello", **options)
    first = next(slow)
    small.complete("other", **options)
    slow.close()

    assert slow.result.text == first
    assert slow.result.usage.generated == len(slow.result.ids) < 5


def test_sessions_and_answers_take_turns(small):
    """Decoding loops of one's own come in between the steps of the others."""
    expected = small.logits([5, 6, 7, 8], "all")

    def session():
        for _ in range(20):
            with small.session() as s:
                for k in range(4):
                    assert (s.feed([5 + k]) == expected[k]).all()

    def answers():
        small.complete("Hello", raw=True, max_tokens=150, temperature=0)

    run(session, answers, session, answers)


def test_closing_the_model_ends_what_runs_in_other_threads():
    m = Model(QWEN3, threads=2, context=512)
    begun, errors = threading.Barrier(4), []

    def work():
        s = m.stream("Hello", raw=True, max_tokens=-1, temperature=0, stop_ids=[])
        next(s)
        begun.wait(HANG_S)
        try:
            for _ in range(100_000):
                next(s)
        except (RequestError, StopIteration) as e:
            errors.append(e)

    def closing():
        begun.wait(HANG_S)
        m.close()

    run(work, work, work, closing)

    assert len(errors) == 3


@posix
def test_ctrl_c_in_one_thread_leaves_the_others_their_answers(small):
    """Signals strike the main thread while it steps for all, waits for another, or does neither."""
    options = {"raw": True, "max_tokens": 60, "seed": 4, "repeat_penalty": 1.2}
    expected = [small.complete(p, **options).ids for p in ("one", "two")]
    found, stop = {0: [], 1: []}, threading.Event()

    def caller(k):
        while not stop.is_set():
            found[k].append(small.complete(("one", "two")[k], **options).ids)

    threads = [threading.Thread(target=caller, args=(k,), daemon=True) for k in (0, 1)]
    for t in threads:
        t.start()

    def strike(number, frame):
        raise KeyboardInterrupt

    struck, deadline = 0, time.monotonic() + HANG_S
    old = signal.signal(signal.SIGALRM, strike)
    try:
        for k in range(60):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0007 * k)
                    small.complete("main", **options)
                    time.sleep(0.05)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                struck += 1
    finally:
        signal.signal(signal.SIGALRM, old)
    stop.set()
    for t in threads:
        t.join(max(0.0, deadline - time.monotonic()))

    assert not any(t.is_alive() for t in threads)
    assert struck > 30
    for k in (0, 1):
        assert found[k]
        assert all(ids == expected[k] for ids in found[k])


FORK = """
    import os, sys, threading, time
    from gguf_runtime import MachineError, Model

    m = Model(sys.argv[1], threads=2)
    options = dict(raw=True, max_tokens=60, temperature=0, stop_ids=[])
    expected = m.complete("Hello", **options).text
    waiting = m.stream("Hello", **options)
    next(waiting)
    stop = threading.Event()

    def busy():  # somebody steps while the process forks
        while not stop.is_set():
            m.complete("Hello", **options)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for t in threads:
        t.start()
    codes = []
    for k in range(5):
        time.sleep(0.01 * k)
        pid = os.fork()
        if pid == 0:
            code = 0
            for call in (lambda: m.complete("Hello"), lambda: list(waiting), lambda: next(m.batch(["x"]))):
                try:
                    call()
                    code = 1
                except MachineError as e:
                    code = code or (0 if "forked" in str(e) else 2)
            os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for t in threads:
        t.join()
    assert m.complete("Hello", **options).text == expected
    m.close()
    print(*codes)
"""


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_forks_while_others_step_never_hangs():
    assert script(FORK, QWEN3, seconds=HANG_S) == ["0"] * 5


def test_a_signal_handler_that_asks_in_the_middle_of_a_step_is_refused(qwen, monkeypatch):
    """It would step inside a step."""
    step, refused = qwen.backend.step, []

    def asking(entries, *rest):
        if not refused:
            try:
                qwen.complete("inner", raw=True, max_tokens=1)
            except RequestError as e:
                refused.append(str(e))
        return step(entries, *rest)

    expected = qwen.complete("Hello", raw=True, max_tokens=5, temperature=0).ids
    monkeypatch.setattr(qwen.backend, "step", asking)
    out = qwen.complete("Hello", raw=True, max_tokens=5, temperature=0)

    assert "while this thread steps it" in refused[0]
    assert out.ids == expected
