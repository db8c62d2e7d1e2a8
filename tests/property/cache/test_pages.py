"""Pages: memory comes and goes page by page, and what is held keeps its bytes."""

from __future__ import annotations

import random

import pytest

from gguf_runtime import MachineError
from gguf_runtime.cache.arena import Arena
from gguf_runtime.cache.pages import POSITIONS, CacheLayer
from gguf_runtime.cache.pool import Cache, Sequence, plan_cache

FULL, WINDOW = (CacheLayer(k, 1, 16, w) for k, w in enumerate((0, 8)))


@pytest.mark.parametrize("page_bytes", [64, 4096, 5000 // 64 * 64, 3 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_pages_keep_their_bytes_while_others_come_and_go(page_bytes: int, seed: int) -> None:
    dice = random.Random(seed)
    arena = Arena(page_bytes, 4)
    held: dict[int, int] = {}
    for _ in range(200):
        do = dice.randrange(5)
        if do == 0:
            arena.grow(dice.randrange(1, 6))
        elif do == 1 and arena.free:
            page = arena.take()
            assert page not in held
            held[page] = dice.randrange(256)
            arena.bytes_of(page)[:64] = arena.bytes_of(page)[-64:] = held[page]
        elif do == 2 and held:
            page = dice.choice(list(held))
            del held[page]
            arena.drop(page)
        elif do == 3:
            n, before = dice.randrange(6), arena.memory
            assert arena.shrink(n) <= n
            assert arena.memory <= before
        else:
            arena.recount(held)
        assert arena.used == len(held)
        assert arena.memory == (arena.used + arena.free) * page_bytes
        for page, byte in held.items():
            part = arena.bytes_of(page)
            assert part.ctypes.data == arena.address(page)
            assert part[0] == part[63] == part[-1] == byte


def test_memory_that_one_group_has_left_serves_another() -> None:
    """Short sequences fill the window's pages; one long sequence needs the memory for the others."""
    n_ctx = 64 * POSITIONS
    plan = plan_cache([FULL, WINDOW], "f16")
    limit = plan.bytes_for(n_ctx, POSITIONS)
    cache = Cache(plan, n_ctx, POSITIONS, limit_bytes=limit)
    short: list[Sequence] = []

    def more() -> None:
        short.append(cache.sequence())
        short[-1].reserve(1)

    with pytest.raises(MachineError, match="all memory"):
        all(more() is None for _ in range(1000))
    for s in short:
        s.close()

    long = cache.sequence()
    while long.length < n_ctx:
        long.reserve(POSITIONS)
        long.advance(POSITIONS)

    assert cache.memory_bytes <= limit
    long.close()
    assert cache.used_pages == 0


def test_one_full_sequence_never_takes_more_than_planned() -> None:
    dice = random.Random(0)
    for window in (1, 8, 63, 64, 65, 100, 500):
        for n_batch in (16, 100, 512):
            plan = plan_cache([FULL, CacheLayer(1, 1, 16, window)], "f16")
            n_ctx = 1500
            cache = Cache(plan, n_ctx, n_batch, limit_bytes=plan.bytes_for(n_ctx, n_batch))
            s = cache.sequence()
            while s.length < n_ctx:
                n = min(dice.choice([1, 7, n_batch]), n_ctx - s.length)
                s.reserve(n)
                s.advance(n)
                first = max(0, s.length - window + 1) // POSITIONS
                assert all(page >= 0 for page in s.pages[1][first:])
            s.close()
