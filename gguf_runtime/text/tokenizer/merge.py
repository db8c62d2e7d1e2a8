"""Merging the symbols of a word: the best pair first, the leftmost among equals.

A symbol is an int; a pair table maps `left * SPAN + right` to (key, merged symbol), or to None when
the two never merge; the lowest key is the best. Short words are scanned. Long ones keep a bucket of
positions per key, so that a text of n equal letters costs O(n) list operations and no heap of n
entries: 1,000,000 × "A" takes about a second, where a heap took five.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from itertools import pairwise

SPAN = 1 << 24  # more than symbols can exist: ids, code points, merged texts that are no token
SHORT = 24  # symbols; where scanning and buckets cost the same
MEMO = 1 << 18  # pairs remembered

Merge = tuple[float, int]


class PairTable(dict[int, "Merge | None"]):
    """A bounded memory of pairs; subclasses say what a pair that was not seen yet becomes."""

    def look_up(self, left: int, right: int) -> Merge | None:
        """(key, merged symbol) of two symbols, or None."""
        raise NotImplementedError

    def __missing__(self, code: int) -> Merge | None:
        if len(self) >= MEMO:
            self.clear()
        found = self[code] = self.look_up(*divmod(code, SPAN))
        return found


def merge(symbols: list[int], pairs: PairTable) -> list[int]:
    """The symbols after all merges; the argument may be overwritten."""
    if len(symbols) < 2:
        return symbols
    if len(symbols) <= SHORT:
        return _merge_short(symbols, pairs)
    return _merge_long(symbols, pairs)


def _merge_short(symbols: list[int], pairs: PairTable) -> list[int]:
    found = [pairs[a * SPAN + b] for a, b in pairwise(symbols)]
    while True:
        best, at = None, -1
        for i, pair in enumerate(found):
            if pair is not None and (best is None or pair[0] < best[0]):
                best, at = pair, i
        if best is None:
            return symbols
        symbols[at : at + 2] = [best[1]]
        del found[at]
        if at < len(found):
            found[at] = pairs[symbols[at] * SPAN + symbols[at + 1]]
        if at:
            found[at - 1] = pairs[symbols[at - 1] * SPAN + symbols[at]]


def _merge_long(symbols: list[int], pairs: PairTable) -> list[int]:
    n = len(symbols)
    after = list(range(1, n + 1))  # a symbol's right neighbour; n: none
    before = list(range(-1, n - 1))
    found: list[Merge | None] = [pairs[a * SPAN + b] for a, b in pairwise(symbols)]
    found.append(None)  # found[i]: the pair that starts at i now; entries in buckets may be stale
    buckets = _Buckets()
    for i, pair in enumerate(found):
        if pair is not None:
            buckets.put(pair[0], i)

    while buckets.keys:
        key, bucket = buckets.best()
        while bucket:
            i = -bucket.pop()
            pair = found[i]
            if pair is None or pair[0] != key:
                continue
            j = after[i]
            k = after[i] = after[j]
            h = before[i]
            symbols[i] = merged = pair[1]
            found[j] = found[i] = None
            if k < n:
                before[k] = i
                found[i] = pair = pairs[merged * SPAN + symbols[k]]
                if pair is not None:
                    buckets.put(pair[0], i)
            if h >= 0:
                found[h] = pair = pairs[symbols[h] * SPAN + merged]
                if pair is not None:
                    buckets.put(pair[0], h)
            if buckets.keys[0] < key:
                break  # a better pair has appeared; this bucket waits
        else:
            buckets.drop_best()

    out, i = [], 0
    while i < n:
        out.append(symbols[i])
        i = after[i]
    return out


class _Buckets:
    """Positions by key. The best bucket is kept sorted, negated: `pop()` takes the leftmost."""

    def __init__(self) -> None:
        self.keys: list[float] = []  # a heap of the keys that have a bucket
        self._lists: dict[float, list[int]] = {}
        self._sorted: set[float] = set()

    def put(self, key: float, i: int) -> None:
        bucket = self._lists.get(key)
        if bucket is None:
            self._lists[key] = [-i]
            heappush(self.keys, key)
        elif key in self._sorted:
            insort(bucket, -i)  # next to where merging is, so near the end: cheap
        else:
            bucket.append(-i)

    def best(self) -> tuple[float, list[int]]:
        key = self.keys[0]
        bucket = self._lists[key]
        if key not in self._sorted:
            bucket.sort()
            self._sorted.add(key)
        return key, bucket

    def drop_best(self) -> None:
        key = heappop(self.keys)
        del self._lists[key]
        self._sorted.discard(key)
