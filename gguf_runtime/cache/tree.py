"""The prefix tree: what finished sequences leave behind, so that nothing is read twice.

A radix tree keyed by token ids. A kept sequence hangs at the node where its ids end; its pages are
shared with whoever still uses them. A new prompt starts from the longest beginning that some kept
sequence holds, at most its length - 1 (the last token must give logits). Where window layers have
let go of the pages that a shorter beginning would need, the start moves back to the longest kept
sequence that the prompt begins with as a whole. Results are bit-identical with and without reuse.
Least recently used sequences go first, and those that a longer one can stand in for.

An exception may strike anywhere (Ctrl-C does): what comes out is compared with the ids that it was
kept under, and a sequence is let go of before it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

MOST = 256  # kept sequences


class Positions(Protocol):
    """What is kept: a sequence of the cache."""

    length: int

    def resumable(self, n: int) -> bool:
        """Whether it can go on after `truncate(n)`."""

    def truncate(self, n: int) -> None:
        """Forget positions from n on."""

    def fork(self) -> Positions:
        """A sequence with the same past."""

    def close(self) -> None:
        """Give its pages back."""


Ids = tuple[int, ...]


class _Node:
    """Ids from the parent to here, what goes on behind them, and a sequence that ends here."""

    __slots__ = ("children", "edge", "ids", "kept", "parent", "used")

    def __init__(self, edge: Ids, parent: _Node | None) -> None:
        self.edge = edge
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.kept: Positions | None = None
        self.ids: Ids = ()  # of what is kept
        self.used = 0

    def below(self) -> Iterator[_Node]:
        """This node and all behind it that keep a sequence."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.kept is not None:
                yield node
            stack += node.children.values()


class PrefixTree:
    """Kept sequences by their ids. Not locked: whoever steps the model owns it."""

    def __init__(self) -> None:
        self._root = _Node((), None)
        self._clock = 0

    def __len__(self) -> int:
        return sum(1 for _ in self._root.below())

    def keep(self, ids: Sequence[int], sequence: Positions) -> None:
        """Hand over a sequence that holds exactly these ids; it belongs to the tree from now on."""
        ids = tuple(ids)
        if not ids or sequence.length != len(ids):
            sequence.close()
            return
        node = self._insert(ids)
        self._touch(node)
        for other in node.below():
            assert other.kept is not None
            if other is not node and other.kept.resumable(len(ids)):
                self._touch(other)
                sequence.close()
                self._let_go(node)
                return
        old, node.ids = node.kept, ids
        node.kept = sequence
        if old is not None and old is not sequence:  # the newer one is as good
            old.close()
        for passed in self._walk(ids)[2]:
            shorter = passed.kept
            if passed is not node and shorter is not None and sequence.resumable(shorter.length):
                self._let_go(passed)
        while len(self) > MOST:
            self.evict()

    def match(self, ids: Sequence[int]) -> Positions | None:
        """A fork of the longest beginning of ids that is kept, shorter than ids; None for nothing."""
        ids = tuple(ids)
        found = self._best(ids)
        if found is None:
            return None
        length, node = found
        assert node.kept is not None
        if not length or node.ids[:length] != ids[:length]:
            self._let_go(node)
            return None
        self._touch(node)
        out = node.kept.fork()
        out.truncate(length)
        return out

    def longest(self, ids: Sequence[int]) -> int:
        """How much `match` would find."""
        found = self._best(tuple(ids))
        return 0 if found is None else found[0]

    def _best(self, ids: Ids) -> tuple[int, _Node] | None:
        """The longest beginning that is kept, shorter than ids, and where."""
        node, n, path = self._walk(ids)
        n = min(n, len(ids) - 1)
        if n <= 0:
            return None
        best: tuple[int, int, _Node] | None = None
        for found in node.below():
            assert found.kept is not None
            if found.kept.resumable(n) and (best is None or (n, found.used) > best[:2]):
                best = (n, found.used, found)
        for passed in path:  # whole sequences that ids begin with
            if passed.kept is not None and passed.kept.length <= n:
                here = (passed.kept.length, passed.used, passed)
                if best is None or here[:2] > best[:2]:
                    best = here
        return None if best is None else (best[0], best[2])

    def known(self, ids: Sequence[int]) -> int:
        """How long a beginning of ids is in the tree, whether one can go on from there or not."""
        return self._walk(tuple(ids))[1]

    def evict(self) -> bool:
        """Let go of the least recently used sequence; False when nothing is kept."""
        oldest = min(self._root.below(), key=lambda n: n.used, default=None)
        if oldest is None:
            return False
        self._let_go(oldest)
        return True

    def clear(self) -> None:
        """Let go of everything."""
        while self.evict():
            pass

    # ---- the tree ------------------------------------------------------------------------------

    def _let_go(self, node: _Node) -> None:
        kept, node.kept = node.kept, None
        if kept is not None:
            kept.close()
        self._prune(node)

    def _touch(self, node: _Node) -> None:
        self._clock += 1
        node.used = self._clock

    def _walk(self, ids: Ids) -> tuple[_Node, int, list[_Node]]:
        """Deepest node that shares a beginning with ids, how long it is, and the nodes passed whole."""
        node, n = self._root, 0
        passed: list[_Node] = []
        while n < len(ids):
            child = node.children.get(ids[n])
            if child is None:
                break
            k = _common(child.edge, ids, n)
            n += k
            node = child
            if k < len(child.edge):
                break
            passed.append(child)
        return node, n, passed

    def _insert(self, ids: Ids) -> _Node:
        node, n = self._root, 0
        while n < len(ids):
            child = node.children.get(ids[n])
            k = 0 if child is None else _common(child.edge, ids, n)
            if child is None or k == 0:  # nothing there, or what an interrupted change has left
                new = _Node(ids[n:], node)
                node.children[ids[n]] = new
                return new
            if k < len(child.edge):  # cut the edge in two
                middle = _Node(child.edge[:k], node)
                node.children[ids[n]] = middle
                child.edge, child.parent = child.edge[k:], middle
                middle.children[child.edge[0]] = child
                child = middle
            node, n = child, n + k
        return node

    def _prune(self, node: _Node) -> None:
        """Remove nodes that lead nowhere, and join those with one way on."""
        while node.parent is not None and node.kept is None:
            parent = node.parent
            if not node.children:
                parent.children.pop(node.edge[0], None)
                node = parent
                continue
            if len(node.children) == 1:
                (child,) = node.children.values()
                child.edge, child.parent = node.edge + child.edge, parent
                parent.children[child.edge[0]] = child
            return


def _common(edge: Ids, ids: Ids, start: int) -> int:
    """How many ids of the edge stand at ids[start:]."""
    low, high = 0, min(len(edge), len(ids) - start)
    if edge[:high] == ids[start : start + high]:
        return high
    while high - low > 1:  # the first `low` are the same, the first `high` are not
        middle = (low + high) // 2
        if edge[low:middle] == ids[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low
