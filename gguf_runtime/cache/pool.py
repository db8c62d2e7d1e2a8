"""The paged cache: pages of 64 positions, counted and shared, one pool per group of layers.

A group holds the layers that live equally long: those that see everything, and those with the same sliding window. A
page of a group holds 64 positions of all its layers; a sequence is a list of pages per group. Forks share pages, and
a store into a shared page goes to a copy. Window layers let go of pages that no query can see any more.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.pages import POSITIONS, CacheLayer, Layout
from gguf_runtime.errors import MachineError, RequestError
from quant.errors import QuantError
from quant.memory import allocate

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

GONE = -1  # a page that its window has left behind


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """Where one layer lives: group, byte offset in the group's page, layout there."""

    group: int
    offset: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Groups of layers, the place of every layer, and the bytes of a page of each group."""

    places: tuple[LayerPlace, ...]
    windows: tuple[int, ...]  # per group; 0 sees everything
    page_bytes: tuple[int, ...]

    def bytes_for(self, n_ctx: int, n_batch: int) -> int:
        """Memory of one sequence of n_ctx positions, window groups trimmed to their window and a step."""
        total = 0
        for window, size in zip(self.windows, self.page_bytes, strict=True):
            kept = min(n_ctx, window + n_batch + POSITIONS) if window else n_ctx
            total += n_pages(kept) * size
        return total


def n_pages(positions: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // POSITIONS)


def plan_cache(layers: Seq[CacheLayer], kind: str) -> CachePlan:
    """Group the layers of a graph by window; RequestError where the cache type does not fit a layer."""
    windows = tuple(dict.fromkeys(layer.window for layer in layers))
    sizes = [0] * len(windows)
    places = []
    for layer in layers:
        g = windows.index(layer.window)
        layout = Layout(kind, layer.head_dim, layer.head_dim, layer.n_head_kv)
        places.append(LayerPlace(g, sizes[g], layout))
        sizes[g] += layout.layer_bytes
    return CachePlan(tuple(places), windows, tuple(sizes))


class _Arena:
    """Pages of one group: memory in blocks that grow with use, a free list, and a count of owners per page."""

    def __init__(self, page_bytes: int, block_pages: int) -> None:
        self.page_bytes = page_bytes
        self._block_pages = block_pages
        self._blocks: list[U8] = []
        self._addresses: list[int] = []
        self._free: list[int] = []
        self._owners: list[int] = []

    def take(self) -> int:
        if not self._free:
            self._grow()
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def _grow(self) -> None:
        try:
            block = allocate(self.page_bytes * self._block_pages, huge=True)
        except QuantError as e:
            raise MachineError("no memory for more of the cache", hint="use a smaller context, -c N") from e
        first = len(self._addresses)
        self._blocks.append(block)
        self._addresses += [block.ctypes.data + k * self.page_bytes for k in range(self._block_pages)]
        self._owners += [0] * self._block_pages
        self._free += range(first + self._block_pages - 1, first - 1, -1)

    def share(self, page: int) -> None:
        self._owners[page] += 1

    def drop(self, page: int) -> None:
        self._owners[page] -= 1
        if self._owners[page] == 0:
            self._free.append(page)

    def shared(self, page: int) -> bool:
        return self._owners[page] > 1

    def address(self, page: int) -> int:
        return self._addresses[page]

    def bytes_of(self, page: int) -> U8:
        block, k = divmod(page, self._block_pages)
        return self._blocks[block][k * self.page_bytes : (k + 1) * self.page_bytes]

    @property
    def used(self) -> int:
        return len(self._addresses) - len(self._free)

    @property
    def memory(self) -> int:
        return len(self._addresses) * self.page_bytes


class Cache:
    """All pages of a model; makes sequences. Not locked: whoever steps the model owns it."""

    def __init__(self, plan: CachePlan, n_ctx: int, n_batch: int, block_pages: int = 8) -> None:
        self.plan = plan
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.arenas = [_Arena(size, block_pages) for size in plan.page_bytes]

    def sequence(self) -> Sequence:
        """A new, empty sequence."""
        return Sequence(self)

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that sequences hold."""
        return sum(a.used * a.page_bytes for a in self.arenas)

    @property
    def memory_bytes(self) -> int:
        """Bytes asked from the system."""
        return sum(a.memory for a in self.arenas)


class Sequence:
    """The pages of one sequence and how many positions of them are valid.

    `tables[g]` lists the addresses of the group's pages for the kernels, page index by page index; entries that a
    window has left are 0 and never read.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        n = n_pages(cache.n_ctx)
        self.length = 0
        self.pages: list[list[int]] = [[] for _ in cache.arenas]
        self.tables: list[I64] = [np.zeros(n, np.int64) for _ in cache.arenas]
        self._closed = False

    def reserve(self, n: int) -> None:
        """Make room for n more positions in pages that are this sequence's own.

        Raises:
            RequestError: the context is full; nothing has changed.
        """
        if self._closed:
            raise RequestError("this sequence is closed")
        end = self.length + n
        if end > self._cache.n_ctx:
            raise RequestError(
                "the context is full",
                expected=f"at most {self._cache.n_ctx:,} tokens",
                got=f"{end:,}",
                hint="use a larger context (-c N) or shorter input",
            )
        for g, arena in enumerate(self._cache.arenas):
            pages, table = self.pages[g], self.tables[g]
            for k in range(self.length // POSITIONS, len(pages)):
                if pages[k] != GONE and arena.shared(pages[k]):
                    copy = arena.take()
                    arena.bytes_of(copy)[:] = arena.bytes_of(pages[k])
                    arena.drop(pages[k])
                    pages[k] = copy
                    table[k] = arena.address(copy)
            while len(pages) * POSITIONS < end:
                page = arena.take()
                table[len(pages)] = arena.address(page)
                pages.append(page)

    def advance(self, n: int) -> None:
        """n positions were stored; pages that every window has left go back to the pool."""
        self.length += n
        for g, window in enumerate(self._cache.plan.windows):
            if not window:
                continue
            pages, table = self.pages[g], self.tables[g]
            keep_from = max(0, self.length - window - self._cache.n_batch) // POSITIONS
            k = min(keep_from, len(pages)) - 1
            while k >= 0 and pages[k] != GONE:
                self._cache.arenas[g].drop(pages[k])
                pages[k] = GONE
                table[k] = 0
                k -= 1

    def resumable(self, n: int) -> bool:
        """Whether positions n, n + 1, … can be computed after `truncate(n)`: every window still holds its last keys."""
        for g, window in enumerate(self._cache.plan.windows):
            first = max(0, n - window + 1) // POSITIONS if window else 0
            if n and any(p == GONE for p in self.pages[g][first : n_pages(n)]):
                return False
        return n <= self.length

    def truncate(self, n: int) -> None:
        """Forget positions from n on. Check `resumable(n)` first where windows are in play."""
        for g, arena in enumerate(self._cache.arenas):
            pages = self.pages[g]
            while len(pages) > n_pages(n):
                page = pages.pop()
                self.tables[g][len(pages)] = 0
                if page != GONE:
                    arena.drop(page)
        self.length = min(self.length, n)

    def fork(self) -> Sequence:
        """A sequence with the same past; pages are shared until one of them stores into them."""
        other = Sequence(self._cache)
        other.length = self.length
        for g, arena in enumerate(self._cache.arenas):
            other.pages[g] = list(self.pages[g])
            other.tables[g][:] = self.tables[g]
            for page in self.pages[g]:
                if page != GONE:
                    arena.share(page)
        return other

    def close(self) -> None:
        """Give the pages back."""
        if not self._closed:
            self.truncate(0)
            self._closed = True
