"""The paged cache: pages of 64 positions, counted and shared, one pool per group of layers.

A group holds the layers that live equally long: those that see everything, and those with the same
sliding window. A page of a group holds 64 positions of all its layers; a sequence is a list of
pages per group. Forks share pages, and a store into a shared page goes to a copy. Window layers let
go of pages that no query can see any more, but for SLACK positions, so that a few can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache.arena import HINT, Arena
from gguf_runtime.cache.pages import POSITIONS, CacheLayer, Layout
from gguf_runtime.errors import MachineError, RequestError

I64 = NDArray[np.int64]

GONE = -1  # a page that its window has left behind
SLACK = POSITIONS  # behind a window, still kept


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
        """Memory of one sequence of n_ctx positions; window groups keep their window and a step."""
        total = 0
        for window, size in zip(self.windows, self.page_bytes, strict=True):
            # What is kept begins and ends anywhere in a page.
            kept = min(n_ctx, window + SLACK + n_batch + 2 * POSITIONS) if window else n_ctx
            total += n_pages(kept) * size
        return total


def n_pages(positions: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // POSITIONS)


def plan_cache(layers: Seq[CacheLayer], kind: str) -> CachePlan:
    """Group the layers of a graph by window; RequestError where the cache type does not fit one."""
    windows = tuple(dict.fromkeys(layer.window for layer in layers))
    sizes = [0] * len(windows)
    places = []
    for layer in layers:
        g = windows.index(layer.window)
        layout = Layout(kind, layer.head_dim, layer.head_dim, layer.n_head_kv)
        places.append(LayerPlace(g, sizes[g], layout))
        sizes[g] += layout.layer_bytes
    return CachePlan(tuple(places), windows, tuple(sizes))


class Cache:
    """All pages of a model; makes sequences. Not locked: whoever steps the model owns it.

    Sequences that are forgotten without `close` give their pages back at the next change. An
    exception may strike anywhere (Ctrl-C does), in finalizers too: so there are none, and what was
    begun and not ended is put right by counting all pages anew.

    Args:
        limit_bytes: memory of all pages together at most; None: no limit.
        usual_bytes: memory up to which pages are added before `evict` is asked; None: the limit. Where
            several sequences take more, what is kept may still have what is usual beside one.
    """

    def __init__(
        self,
        plan: CachePlan,
        n_ctx: int,
        n_batch: int,
        block_pages: int = 8,
        limit_bytes: int | None = None,
        usual_bytes: int | None = None,
    ) -> None:
        self.plan = plan
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.limit_bytes = limit_bytes
        self.usual_bytes = usual_bytes
        self.arenas = [Arena(size, block_pages) for size in plan.page_bytes]
        self.evict: Callable[[], bool] = _nothing  # closes a sequence that nobody is using
        self._sequences: list[ref[Sequence]] = []
        self._changing = False

    def sequence(self) -> Sequence:
        """A new, empty sequence."""
        made = Sequence(self)
        self._sequences.append(ref(made))
        return made

    @property
    def used_pages(self) -> int:
        """Pages that sequences hold, over all groups; those of forgotten ones are taken back."""
        self.begin()
        self.end()
        return sum(a.used for a in self.arenas)

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that sequences hold."""
        return sum(a.used * a.page_bytes for a in self.arenas)

    @property
    def memory_bytes(self) -> int:
        """Bytes that pages may take."""
        return sum(a.memory for a in self.arenas)

    def room(self, wanted: Callable[[int], int]) -> None:
        """Have as many free pages in every group as `wanted(group)` says, which may change.

        In this order: memory that is usual, what nobody is using, more memory.

        Raises:
            MachineError: the memory that the cache may have is used up.
        """
        self.begin()  # so that what is counted is right
        self.end()
        for g, arena in enumerate(self.arenas):
            while wanted(g) > arena.free:
                lacking = (wanted(g) - arena.free) * arena.page_bytes
                self.begin()
                grown = self._grow(g, wanted, self._usual(lacking))
                self.end()
                if grown or self.evict():
                    continue
                self.begin()
                grown = self._grow(g, wanted, self.limit_bytes)
                self.end()
                if not grown:
                    raise self._full(g, wanted)

    def _usual(self, lacking: int) -> int | None:
        """Memory up to which pages are added before anything that is kept goes."""
        usual, limit = self.usual_bytes, self.limit_bytes
        if usual is None or self.memory_bytes + lacking <= usual:
            return limit if usual is None else usual
        in_use = 0
        for g, arena in enumerate(self.arenas):
            pages: set[int] = set()
            for r in self._sequences:
                s = r()
                if s is not None and not s.kept:
                    pages.update(s.pages[g])
            in_use += len(pages - {GONE}) * arena.page_bytes
        beside = max(0, usual - self.plan.bytes_for(self.n_ctx, self.n_batch))
        usual = max(usual, in_use + lacking + beside)
        return usual if limit is None else min(limit, usual)

    def _grow(self, group: int, wanted: Callable[[int], int], limit: int | None) -> bool:
        """Memory for free pages that lack, in part at least; free pages of others may lose theirs."""
        arena = self.arenas[group]
        n = wanted(group) - arena.free
        if n <= 0:  # what was forgotten has given pages back
            return True
        if limit is not None:
            room = limit - self.memory_bytes
            for g, other in enumerate(self.arenas):
                if g != group and room < n * arena.page_bytes:
                    lacking = -(-(n * arena.page_bytes - room) // other.page_bytes)
                    spare = other.free - wanted(g)
                    room += other.shrink(min(lacking, max(0, spare))) * other.page_bytes
            n = min(n, room // arena.page_bytes)
        if n <= 0:
            return False
        arena.grow(n)
        return True

    def _full(self, group: int, wanted: Callable[[int], int]) -> MachineError:
        arena, limit = self.arenas[group], self.limit_bytes or 0
        need = self.memory_bytes + (wanted(group) - arena.free) * arena.page_bytes
        return MachineError(
            "the sequences in use take all memory that the cache may have",
            expected=f"at most {limit / 1e6:,.0f} MB",
            got=f"{need / 1e6:,.0f} MB",
            hint=HINT,
        )

    def begin(self) -> None:
        """Before a change of pages; puts right what an interrupted one has left."""
        if self._changing or not all([r() for r in self._sequences]):  # noqa: C419 - twice as fast
            self._changing = True
            live = [s for r in self._sequences if (s := r()) is not None]
            for g, arena in enumerate(self.arenas):
                arena.recount(p for s in live for p in s.pages[g] if p != GONE)
                for s in live:
                    s.tables[g][: len(s.pages[g])] = [
                        0 if p == GONE else arena.address(p) for p in s.pages[g]
                    ]
            self._sequences = [ref(s) for s in live if not s.closed]
        self._changing = True

    def forget(self, sequence: Sequence) -> None:
        """It holds no pages any more."""
        self._sequences = [r for r in self._sequences if r() is not sequence]

    def end(self) -> None:
        """After a change that was carried out whole."""
        self._changing = False


def _nothing() -> bool:
    return False


class Sequence:
    """The pages of one sequence and how many positions of them are valid.

    `tables[g]` lists the addresses of the group's pages for the kernels, page index by page index;
    entries that a window has left are 0 and never read. `addresses[g]` is where `tables[g]` lies.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        n = n_pages(cache.n_ctx)
        self.length = 0
        self.kept = False  # for prompts that begin alike; nobody is using it
        self.pages: list[list[int]] = [[] for _ in cache.arenas]
        self.tables: list[I64] = [np.zeros(n, np.int64) for _ in cache.arenas]
        self.addresses: list[int] = [int(t.ctypes.data) for t in self.tables]
        self._own_until = 0  # positions below it lie in pages that are there and not shared
        self.closed = False

    def reserve(self, n: int) -> None:
        """Make room for n more positions in pages that are this sequence's own.

        Raises:
            RequestError: the context is full; nothing has changed.
            MachineError: no memory for more pages; nothing that counts has changed.
        """
        if self.closed:
            raise RequestError("this sequence is closed")
        end = self.length + n
        if end <= self._own_until:
            return
        cache = self._cache
        if end > cache.n_ctx:
            raise RequestError(
                "the context is full",
                expected=f"at most {cache.n_ctx:,} tokens",
                got=f"{end:,}",
                hint="use a larger context (-c N) or shorter input",
            )
        cache.room(lambda g: self._lacking(g, end))
        cache.begin()
        for g, arena in enumerate(cache.arenas):
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
        self._own_until = min(len(p) for p in self.pages) * POSITIONS
        cache.end()

    def _lacking(self, group: int, end: int) -> int:
        """Pages that a group needs for positions up to `end`: new ones, and copies of shared ones."""
        arena, pages = self._cache.arenas[group], self.pages[group]
        behind = pages[self.length // POSITIONS :]
        copies = sum(p != GONE and arena.shared(p) for p in behind)
        return copies + max(0, n_pages(end) - len(pages))

    def advance(self, n: int) -> None:
        """n positions were stored; pages that every window has left go back to the pool."""
        cache = self._cache
        before = self.length
        self.length += n
        if before // POSITIONS == self.length // POSITIONS:
            return  # windows let go of whole pages
        cache.begin()
        for g, window in enumerate(cache.plan.windows):
            if not window:
                continue
            pages, table = self.pages[g], self.tables[g]
            keep_from = max(0, self.length - window - SLACK) // POSITIONS
            k = min(keep_from, len(pages)) - 1
            while k >= 0 and pages[k] != GONE:
                cache.arenas[g].drop(pages[k])
                pages[k] = GONE
                table[k] = 0
                k -= 1
        cache.end()

    def resumable(self, n: int) -> bool:
        """Whether position n can be computed after `truncate(n)`: windows hold their last keys."""
        for g, window in enumerate(self._cache.plan.windows):
            first = max(0, n - window + 1) // POSITIONS if window else 0
            if n and any(p == GONE for p in self.pages[g][first : n_pages(n)]):
                return False
        return n <= self.length

    def truncate(self, n: int) -> None:
        """Forget positions from n on. Check `resumable(n)` first where windows are in play."""
        cache = self._cache
        cache.begin()
        self.length = min(self.length, n)
        self._own_until = 0
        for g, arena in enumerate(cache.arenas):
            pages = self.pages[g]
            while len(pages) > n_pages(n):
                page = pages.pop()
                self.tables[g][len(pages)] = 0
                if page != GONE:
                    arena.drop(page)
        cache.end()

    def fork(self) -> Sequence:
        """A sequence with the same past; pages are shared until one of them stores into them."""
        cache = self._cache
        other = cache.sequence()
        cache.begin()
        self._own_until = 0
        for g, arena in enumerate(cache.arenas):
            other.pages[g] = list(self.pages[g])
            other.tables[g][:] = self.tables[g]
            for page in self.pages[g]:
                if page != GONE:
                    arena.share(page)
        other.length = self.length
        cache.end()
        return other

    def close(self) -> None:
        """Give the pages back."""
        if not self.closed:
            self.truncate(0)
            self.closed = True
            self._cache.forget(self)
