"""The prefix tree finds what a plain search over all kept sequences finds."""

from __future__ import annotations

import random

import pytest

from gguf_runtime.cache.tree import PrefixTree


class Kept:
    """A sequence that forgets what lies more than `window` behind its end; counts what is open."""

    open = 0

    def __init__(self, ids: list[int], window: int = 0) -> None:
        self.ids, self.window, self.held = list(ids), window, len(ids)
        Kept.open += 1

    @property
    def length(self) -> int:
        return len(self.ids)

    def resumable(self, n: int) -> bool:
        return n <= self.length and (not self.window or n == self.held or n == 0)

    def truncate(self, n: int) -> None:
        del self.ids[n:]

    def fork(self) -> Kept:
        twin = Kept(self.ids, self.window)
        twin.held = self.held
        return twin

    def close(self) -> None:
        Kept.open -= 1


def common(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("seed", range(20))
def test_match_is_the_longest_beginning_that_can_go_on(seed: int, window: int) -> None:
    rng = random.Random(seed)
    tree, kept = PrefixTree(), []
    for _ in range(60):
        ids = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
        if rng.random() < 0.5:
            tree.keep(ids, Kept(ids, window))
            kept.append(ids)
            continue
        lengths = [common(k, ids) for k in kept]
        if window:
            lengths = [n for n, k in zip(lengths, kept, strict=True) if n == len(k) < len(ids)]
        want = max([min(n, len(ids) - 1) for n in lengths], default=0)

        found = tree.match(ids)

        assert (0 if found is None else found.length) == want
        if found is not None:
            assert found.ids == ids[: found.length]
            found.close()


def test_evict_takes_the_least_recently_used_and_closes_everything() -> None:
    Kept.open = 0
    tree = PrefixTree()
    for ids in ([1, 2, 3], [1, 2, 4, 5], [7]):
        tree.keep(ids, Kept(ids))
    used = tree.match([1, 2, 3, 9])
    assert used is not None
    used.close()

    assert tree.evict()
    assert tree.match([1, 2, 4, 5, 6]).length == 2  # [1, 2, 3] is still there
    tree.evict()
    tree.evict()

    assert not tree.evict()
    assert len(tree) == 0
    assert Kept.open == 1  # the match above
