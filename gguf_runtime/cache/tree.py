"""The prefix tree: what finished sequences leave behind, so that nothing is read twice.

A radix tree keyed by token ids. A kept sequence hangs at the node where its ids end; its pages are
shared with whoever still uses them. A new prompt starts from the longest beginning that some kept
sequence holds, at most its length - 1 (the last token must give logits). Where window layers have
let go of the pages that a shorter beginning would need, the start moves back to the longest kept
sequence that the prompt begins with as a whole. Results are bit-identical with and without reuse.
Least recently used sequences go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


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


class _Node:
    """Ids from the parent to here, what goes on behind them, and a sequence that ends here."""

    __slots__ = ("children", "edge", "kept", "parent", "used")

    def __init__(self, edge: tuple[int, ...], parent: _Node | None) -> None:
        self.edge = edge
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.kept: Positions | None = None
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
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def keep(self, ids: Sequence[int], sequence: Positions) -> None:
        """Hand over a sequence that holds exactly these ids; it belongs to the tree from now on."""
        if not ids or sequence.length != len(ids):
            sequence.close()
            return
        node = self._insert(tuple(ids))
        if node.kept is None:
            self._n += 1
        else:  # the same ids again: the newer one is as good
            node.kept.close()
        node.kept = sequence
        self._touch(node)

    def match(self, ids: Sequence[int]) -> Positions | None:
        """A fork of the longest beginning of ids that is kept, shorter than ids; None for nothing."""
        if len(ids) < 2:
            return None
        node, n, path = self._walk(ids)
        n = min(n, len(ids) - 1)
        if n == 0:
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
        if best is None:
            return None
        length, _, node = best
        assert node.kept is not None
        self._touch(node)
        out = node.kept.fork()
        out.truncate(length)
        return out

    def evict(self) -> bool:
        """Let go of the least recently used sequence; False when nothing is kept."""
        oldest = min(self._root.below(), key=lambda n: n.used, default=None)
        if oldest is None or oldest.kept is None:
            return False
        oldest.kept.close()
        oldest.kept = None
        self._n -= 1
        self._prune(oldest)
        return True

    def clear(self) -> None:
        """Let go of everything."""
        while self.evict():
            pass

    # ---- the tree ------------------------------------------------------------------------------

    def _touch(self, node: _Node) -> None:
        self._clock += 1
        node.used = self._clock

    def _walk(self, ids: Sequence[int]) -> tuple[_Node, int, list[_Node]]:
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

    def _insert(self, ids: tuple[int, ...]) -> _Node:
        node, n = self._root, 0
        while n < len(ids):
            child = node.children.get(ids[n])
            if child is None:
                new = _Node(ids[n:], node)
                node.children[ids[n]] = new
                return new
            k = _common(child.edge, ids, n)
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
                del parent.children[node.edge[0]]
                node = parent
                continue
            if len(node.children) == 1:
                (child,) = node.children.values()
                child.edge, child.parent = node.edge + child.edge, parent
                parent.children[child.edge[0]] = child
            return


def _common(edge: tuple[int, ...], ids: Sequence[int], start: int) -> int:
    """How many ids of the edge stand at ids[start:]."""
    n = min(len(edge), len(ids) - start)
    for k in range(n):
        if edge[k] != ids[start + k]:
            return k
    return n
