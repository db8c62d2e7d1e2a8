"""Prompts that begin like earlier ones read only what is new, and answer what they would without that."""

from __future__ import annotations

import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest

from gguf_runtime import Model
from gguf_runtime.engine import draft
from tests.archs import path_of
from tests.tiny import GEMMA3, QWEN3, SMALL, ids_of

NAMES = ["quant-llama-q4_k_m", "gemma3", "mistral-window"]  # the last two with windows of 8
ASK = {"max_tokens": 6, "temperature": 0}
WAYS = [
    {"temperature": 0},
    {"temperature": 0.3, "seed": 11},
    {"temperature": 1.0, "seed": 5, "presence_penalty": 0.5, "repeat_penalty": 1.2},
]


def answer(m, ids, **options):
    """The Completion of a prompt of ids."""
    request = m.request(templated=False, **options)
    session = m.session(request.reuse)
    stream = m.start(session, ids, request, lambda _: session.close())
    for _ in stream:
        pass
    return stream.result


@pytest.mark.parametrize("which", ["small", "gemma"])
def test_the_same_prompt_again_reads_one_token(which, request, counted):
    m = request.getfixturevalue(which)
    m.backend.forget()
    ids = ids_of(2000)
    counts = counted(m)

    first = answer(m, ids, speculate=False, **ASK)
    read_first = sum(counts)
    counts.clear()
    second = answer(m, ids, speculate=False, **ASK)

    assert read_first == 2000 + len(first.ids) - 1
    assert sum(counts) == 1 + len(second.ids) - 1
    assert (first.usage.cached, second.usage.cached) == (0, 1999)
    assert first.usage.prompt == second.usage.prompt == 2000
    assert second.ids == first.ids == answer(m, ids, reuse=False, **ASK).ids
    assert second.text == first.text


def test_text_begun_alike_is_read_from_where_it_parts(qwen):
    qwen.backend.forget()
    seen = []
    for text in ("The same beginning, then this", "The same beginning, but that", "Other"):
        ids = qwen.prompter.plain(text)
        same = max((common(ids, other) for other in seen), default=0)
        out = qwen.complete(text, raw=True, **ASK)
        seen.append([*ids, *out.ids])

        assert out.usage.cached == same
        assert out.ids == qwen.complete(text, raw=True, reuse=False, **ASK).ids


def common(a, b):
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(b))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("speculate", [False, True])
def test_answers_are_the_same_with_reuse_under_any_pressure(name, speculate, monkeypatch):
    monkeypatch.setattr(draft, "MARGIN", 0.0)  # guess at every chance
    path, dice = path_of(f"{name}.gguf"), random.Random(name)
    pieces = [ids_of(n, seed) for seed, n in enumerate([3, 40, 64, 90, 130])]
    with Model(path, threads=2, context=512) as m:
        cache = m.backend.stepper.cache
        one = m.memory.cache
        cached = evicted = 0
        evict = cache.evict

        def counting():
            nonlocal evicted
            done = evict()
            evicted += done
            return done

        monkeypatch.setattr(cache, "evict", counting)
        for turn in range(30):
            cache.usual_bytes = cache.limit_bytes = one * (1, 2)[turn % 2]
            ids = [*chain.from_iterable(dice.choices(pieces, k=dice.randrange(1, 4)))]
            ids = ids[: dice.randrange(1, len(ids) + 1)]
            options = dice.choice(WAYS) | {"max_tokens": dice.choice([1, 5, 30])}

            out = answer(m, ids, speculate=speculate, **options)

            cached += out.usage.cached
            alone = answer(m, ids, speculate=False, reuse=False, **options)
            assert out.ids == alone.ids, (turn, ids, options)
            assert out.text == alone.text
            assert out.usage.prompt == len(ids) > out.usage.cached
        assert cached > 0
        assert evicted > 0
        m.backend.forget()
        assert m.backend.used_pages == 0


@pytest.mark.parametrize("path", [QWEN3, GEMMA3], ids=["qwen3", "gemma3"])
def test_what_is_kept_never_stands_in_the_way(path):
    """With memory for one sequence and no more, after anything, a full context is still read."""
    n = 512
    need = Model.plan(path, n, threads=1).total
    with Model(path, threads=1, context=n, max_memory=need) as m:
        assert m.memory.kept == 0
        for seed in range(12):
            answer(m, ids_of(40 * (seed + 1), seed), **ASK)
        full = answer(m, ids_of(n, 99), max_tokens=0)
        assert full.usage.prompt == n
        with m.session() as s:
            m.backend.forget()
            s.feed(ids_of(n, 7))
        for seed in range(3):
            out = answer(m, ids_of(100, seed), **ASK)
            assert out.ids == answer(m, ids_of(100, seed), reuse=False, **ASK).ids
        assert m.backend.stepper.cache.memory_bytes <= m.memory.cache
        m.backend.forget()
        assert m.backend.used_pages == 0


def test_with_windows_a_copy_is_kept_where_prompts_part(gemma, counted):
    gemma.backend.forget()
    shared = ids_of(600)
    counts = counted(gemma)
    read = []
    for seed in range(1, 4):
        counts.clear()
        ids = shared + ids_of(300, seed)
        out = answer(gemma, ids, max_tokens=1, temperature=0)
        read.append(sum(counts))
        assert out.ids == answer(gemma, ids, reuse=False, max_tokens=1, temperature=0).ids

    assert read == [900, 900, 300]


@pytest.mark.parametrize("which", ["small", "gemma"])
def test_a_stream_that_is_closed_leaves_what_it_has_read(which, request):
    m = request.getfixturevalue(which)
    m.backend.forget()
    text = "A text that is long enough to be worth it. " * 20
    stream = m.stream(text, raw=True, max_tokens=50, temperature=0)
    next(stream)
    stream.close()

    again = m.complete(text, raw=True, **ASK)

    assert again.usage.cached == again.usage.prompt - 1
    assert again.ids == m.complete(text, raw=True, reuse=False, **ASK).ids


def test_a_prompt_that_is_interrupted_leaves_the_chunks_it_has_read(small, monkeypatch):
    small.backend.forget()
    ids = ids_of(1500)
    step, steps = small.backend.step, []

    def stopping(*args):
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(small.backend, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        answer(small, ids, **ASK)
    monkeypatch.setattr(small.backend, "step", step)

    out = answer(small, ids, **ASK)
    assert out.usage.cached == 1024
    assert out.ids == answer(small, ids, reuse=False, **ASK).ids


def test_a_request_that_fails_leaves_nothing(qwen, monkeypatch):
    qwen.backend.forget()

    def fail(*args):
        raise RuntimeError("no such token")

    with monkeypatch.context() as patch:
        patch.setattr(qwen.backend, "pick", fail)
        with pytest.raises(RuntimeError):
            qwen.complete("Hello", raw=True)
    assert qwen.complete("Hello", raw=True, **ASK).usage.cached == 0


def test_sessions_take_part_where_asked_to(qwen, gemma):
    for m in (qwen, gemma):
        m.backend.forget()
        ids = ids_of(300)
        with m.session() as plain:
            expected = plain.feed(ids)
        with m.session(reuse=True) as first:
            assert np.array_equal(first.feed(ids), expected)
            assert first.cached == 0
        with m.session() as other:
            other.feed(ids)
            assert other.cached == 0
        with m.session(reuse=True) as second:
            assert np.array_equal(second.feed(ids), expected)
            assert second.cached == 299
            assert second.ids == ids
            second.truncate(100)
            second.feed([9, 8])
        with m.session(reuse=True) as third:
            third.feed([*ids[:100], 9, 8, 7])
            assert third.cached == 102


def test_threads_share_what_they_have_read(small):
    small.backend.forget()
    prompts = [
        ids_of(n, seed) + ids_of(5, 3 * k) for k in range(3) for seed, n in ((1, 150), (2, 90))
    ]
    options = {"max_tokens": 8, "temperature": 1.0, "seed": 3}
    expected = [answer(small, ids, reuse=False, **options).ids for ids in prompts]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda ids: answer(small, ids, **options), prompts * 3))

    assert [out.ids for out in found] == expected * 3
    assert sum(out.usage.cached for out in found) > 150
    small.backend.forget()
    assert small.backend.used_pages == 0


def test_streams_that_other_threads_forget_hang_nothing(small, pages):
    before = pages(small)
    done = threading.Event()

    def forgetful():
        while not done.is_set():
            stream = small.stream("Hello there", raw=True, max_tokens=50)
            next(stream)
            del stream
            gc.collect()

    threads = [threading.Thread(target=forgetful) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        expected = answer(small, ids_of(100), reuse=False, **ASK).ids
        for _ in range(20):
            assert answer(small, ids_of(100), **ASK).ids == expected
    finally:
        done.set()
        for t in threads:
            t.join()
    assert pages(small) == before


def test_many_sessions_and_chats_leak_neither_pages_nor_memory(tmp_path):
    from tests.tiny import with_template

    with Model(with_template(tmp_path / "m.gguf", SMALL), threads=1, context=512) as m:
        cache = m.backend.stepper.cache

        def some(k):
            with m.session() as s:
                s.feed(ids_of(70, k))
                s.fork().feed([5])
            with m.chat(system=f"Be number {k}.") as chat:
                chat.send("Hello", max_tokens=4, seed=k)
                chat.fork().send("And?", max_tokens=4, seed=k)
            next(m.stream(f"Text {k}", raw=True, max_tokens=9, seed=k), "")

        for k in range(50):
            some(k)
        gc.collect()
        m.backend.forget()
        objects = len(gc.get_objects())
        for k in range(50, 200):
            some(k)
            assert cache.memory_bytes <= m.memory.cache + m.memory.kept
            assert len(m.backend._tree) <= 256
        gc.collect()
        m.backend.forget()

        assert m.backend.used_pages == 0
        assert len(cache._sequences) == 0
        assert len(gc.get_objects()) < objects + 500
