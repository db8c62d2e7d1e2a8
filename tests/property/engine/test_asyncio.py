"""Answers for asyncio: tasks share steps, a cancelled one ends its sequence, the loop never waits."""

from __future__ import annotations

import asyncio
import time

import pytest

from gguf_runtime import Model, RequestError
from gguf_runtime.engine.job import AHEAD
from tests.tiny import QWEN3

OPTIONS = {"raw": True, "max_tokens": 30, "repeat_penalty": 1.1}


def test_tasks_get_the_answers_of_single_calls_and_share_steps(qwen, pages, monkeypatch):
    before = pages(qwen)
    expected = [qwen.complete(f"{k} is", seed=k, **OPTIONS).ids for k in range(20)]
    widths, step = [], qwen.backend.step

    def counting(entries, *rest):
        widths.append(len(entries))
        return step(entries, *rest)

    async def main():
        tasks = (qwen.acomplete(f"{k} is", seed=k, **OPTIONS) for k in range(20))
        return await asyncio.gather(*tasks)

    monkeypatch.setattr(qwen.backend, "step", counting)
    outs = asyncio.run(main())
    monkeypatch.undo()

    assert [o.ids for o in outs] == expected
    assert max(widths) > 10
    assert pages(qwen) == before


def test_pieces_come_while_the_loop_does_other_things(qwen):
    async def main():
        ticks = 0

        async def ticking():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticker = asyncio.create_task(ticking())
        pieces = [p async for p in qwen.astream("Hello", seed=1, **OPTIONS)]
        ticker.cancel()
        return pieces, ticks

    pieces, ticks = asyncio.run(main())

    assert "".join(pieces) == qwen.complete("Hello", seed=1, **OPTIONS).text
    assert len(pieces) > 1
    assert ticks > len(pieces)


def test_a_cancelled_task_ends_its_sequence(small, pages):
    before = pages(small)

    async def main():
        stream = small.astream("Hello", raw=True, max_tokens=-1, temperature=0, stop_ids=[])
        got = []

        async def read():
            async for piece in stream:
                got.append(piece)  # noqa: PERF401 - it is looked at meanwhile

        task = asyncio.create_task(read())
        while not got:
            await asyncio.sleep(0.001)
        begin = time.perf_counter()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream, time.perf_counter() - begin

    stream, took = asyncio.run(main())

    assert stream.result.finish_reason == "interrupted"
    assert stream.result.text
    assert took < 1
    assert stream._generation.job.over
    assert pages(small) == before


def test_a_task_that_does_not_read_pauses_and_goes_on(small):
    options = {"raw": True, "max_tokens": 60, "temperature": 0, "stop_ids": []}
    expected = small.complete("Hello", **options).ids

    async def main():
        stream = small.astream("Hello", **options)
        await anext(stream)
        job = stream._generation.job
        while not job.paused:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        ahead = len(job.ids) - job.n_prompt - job.taken
        async for _ in stream:
            pass
        return ahead, stream.result.ids

    ahead, ids = asyncio.run(main())

    assert AHEAD <= ahead <= AHEAD + 8
    assert ids == expected


def test_leaving_the_loop_early_ends_the_answer(qwen, pages):
    before = pages(qwen)

    async def main():
        async with qwen.astream("Hello", raw=True, max_tokens=200) as stream:
            async for _ in stream:
                break
        async for _ in qwen.astream("Hello", raw=True, max_tokens=200):
            break
        return stream.result.finish_reason

    assert asyncio.run(main()) == "interrupted"
    assert pages(qwen) == before


def test_events_and_repr(qwen):
    async def main():
        stream = qwen.astream("Hello", events=True, seed=1, **OPTIONS)
        pairs = [e async for e in stream]
        return pairs, repr(stream)

    pairs, shown = asyncio.run(main())

    assert (
        "".join(t for k, t in pairs if k == "text")
        == qwen.complete("Hello", seed=1, **OPTIONS).text
    )
    assert shown == "<AsyncStream, 30 tokens so far>"


def test_a_wrong_option_is_refused_at_once_and_errors_reach_the_task():
    async def main():
        with pytest.raises(RequestError, match="temprature"):
            m.astream("Hello", temprature=1)
        stream = m.astream("Hello", raw=True, max_tokens=200)
        await anext(stream)
        m.close()
        with pytest.raises(RequestError, match="closed"):
            async for _ in stream:
                pass
        return stream.result

    m = Model(QWEN3, threads=2)
    out = asyncio.run(main())

    assert out.finish_reason == "error"


def test_a_second_event_loop_can_use_the_same_model(qwen):
    first, second = (asyncio.run(qwen.acomplete("Hello", seed=2, **OPTIONS)) for _ in range(2))

    assert first.ids == second.ids
