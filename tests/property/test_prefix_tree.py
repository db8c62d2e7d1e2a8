"""The prefix tree finds what a plain search over all kept sequences finds."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest

from gguf_runtime.cache.tree import MOST, PrefixTree


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


def test_a_longer_sequence_stands_in_for_a_shorter_one() -> None:
    for window, kept in ((0, 1), (4, 2)):
        tree = PrefixTree()
        tree.keep([1, 2], Kept([1, 2], window))
        tree.keep([1, 2, 3, 4], Kept([1, 2, 3, 4], window))
        assert len(tree) == kept
        tree.keep([1, 2], Kept([1, 2], window))
        assert len(tree) == kept


def test_the_number_of_kept_sequences_is_limited() -> None:
    tree = PrefixTree()
    for k in range(2 * MOST):
        tree.keep([k, 7], Kept([k, 7]))
    assert len(tree) == MOST
    assert tree.match([0, 7, 8]) is None
    assert tree.match([2 * MOST - 1, 7, 8]).length == 2


@pytest.mark.parametrize("seed", range(10))
def test_an_exception_at_any_line_leaves_nothing_wrong(seed: int) -> None:
    """As Ctrl-C does: what comes out afterwards is still a beginning of what was asked for."""
    rng = random.Random(seed)
    tree = PrefixTree()
    left = 0

    def strike(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename.endswith("tree.py"):
            left -= event == "line"
            if left == 0:
                raise KeyboardInterrupt
        return strike

    struck = 0
    for _ in range(400):
        ids = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
        left = rng.randrange(1, 120)
        before = sys.gettrace()
        sys.settrace(strike)
        try:
            if rng.random() < 0.6:
                tree.keep(ids, Kept(ids, 4 * rng.randrange(2)))
            else:
                tree.evict()
        except KeyboardInterrupt:
            struck += 1
        finally:
            sys.settrace(before)
        found = tree.match(ids)
        if found is not None:
            assert found.ids == ids[: found.length]
            assert 0 < found.length < len(ids)

    assert struck > 100
    tree.clear()
    assert len(tree) == 0
