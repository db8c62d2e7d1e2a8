"""Any mix of callers, prompts, options and memory: every answer is that of a single request."""

from __future__ import annotations

import asyncio
import random

import pytest

from gguf_runtime import Model
from tests.property.engine.test_threads import run
from tests.tiny import GEMMA3, QWEN3, SMALL

BEGINNINGS = ("abcdefgh" * 20, "abcdefgh" * 9, "zyx" * 40, "q", "The quick " * 8)


def request(dice):
    found = {
        "prompt": dice.choice(BEGINNINGS) + dice.choice(["", "1", "22", "xyz" * 5]),
        "raw": True,
        "seed": dice.randrange(4),
        "max_tokens": dice.choice([0, 1, 2, 7, 20, 60]),
    }
    options = [
        {"repeat_penalty": 1.3},
        {"temperature": 0},
        {"stop": [dice.choice("aeiou \n")]},
        {"reuse": False},
        {"speculate": False},
    ]
    for option in options:
        if dice.random() < 0.25:
            found |= option
    return found


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_of_callers_gives_the_answers_of_single_requests(seed, pages):
    dice = random.Random(seed)
    items = [request(dice) for _ in range(24)]
    path = (QWEN3, GEMMA3, SMALL)[seed % 3]
    with Model(path, threads=1 + seed % 3, context=256) as m:
        expected = [m.complete(**i) for i in items]
        m.backend.forget()
        cache = m.backend.stepper.cache
        if seed < 3:  # room for two full sequences; then others may give way
            cache.usual_bytes = cache.limit_bytes = 2 * cache.plan.bytes_for(256, 1)
        found = {}

        def batch():
            for out in m.batch(items, parallel=dice.choice([None, 2, 7])):
                found["batch", out.index] = out

        def calls():
            for k in range(0, 24, 3):
                found["calls", k] = m.complete(**items[k])

        def tasks():
            async def main():
                return await asyncio.gather(*(m.acomplete(**i) for i in items[:6]))

            found.update((("tasks", k), out) for k, out in enumerate(asyncio.run(main())))

        def leaver():
            for k in range(0, 24, 4):
                for n, _ in enumerate(m.stream(**items[k])):
                    if n == k % 5:
                        break

        run(batch, *(() if seed < 3 else (calls, tasks, leaver)))

        assert len(found) == 24 + (0 if seed < 3 else 8 + 6)
        for (_, k), out in found.items():
            assert (out.ids, out.text) == (expected[k].ids, expected[k].text)
            assert (out.finish_reason, out.stop) == (expected[k].finish_reason, expected[k].stop)
        assert pages(m) == 0
