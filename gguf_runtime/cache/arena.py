"""Pages of one group of layers: memory, a free list, and a count of owners per page.

Blocks of pages are address space; a page has memory from `grow` to `shrink`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import MachineError
from quant.errors import QuantError
from quant.memory import allocate, give_back

U8 = NDArray[np.uint8]

HINT = "close sessions that are done with, or use a smaller context, -c N"


class Arena:
    """Pages of one group, in blocks that are added with use."""

    def __init__(self, page_bytes: int, block_pages: int) -> None:
        self.page_bytes = page_bytes
        self._block_pages = block_pages
        self._blocks: list[tuple[U8, int]] = []  # memory and its address
        self._free: list[int] = []
        self._bare: list[int] = []  # without memory
        self._owners: list[int] = []

    def take(self) -> int:
        """A free page; there must be one."""
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def grow(self, n: int) -> None:
        """Memory for n pages more; MachineError where the system has none."""
        while len(self._bare) < n:
            try:
                block = allocate(self.page_bytes * self._block_pages, huge=True)
            except QuantError as e:
                raise MachineError("no memory for more of the cache", got=e.got, hint=HINT) from e
            first = len(self._owners)
            self._blocks.append((block, int(block.ctypes.data)))
            self._owners += [0] * self._block_pages
            self._bare[:0] = range(first + self._block_pages - 1, first - 1, -1)
        for _ in range(n):
            self._free.append(self._bare.pop())

    def shrink(self, n: int) -> int:
        """Give the memory of at most n free pages back; how many it were."""
        done = 0
        while done < n and self._free:
            page = self._free[0]
            block, k = divmod(page, self._block_pages)
            start = k * self.page_bytes
            if not give_back(self._blocks[block][0], start, start + self.page_bytes):
                break
            self._bare.append(page)
            del self._free[0]
            done += 1
        return done

    def share(self, page: int) -> None:
        """One more owner."""
        self._owners[page] += 1

    def drop(self, page: int) -> None:
        """One owner less; the last one frees the page."""
        self._owners[page] -= 1
        if self._owners[page] == 0:
            self._free.append(page)

    def shared(self, page: int) -> bool:
        """Whether it has several owners."""
        return self._owners[page] > 1

    def address(self, page: int) -> int:
        """Where the page lies."""
        block, k = divmod(page, self._block_pages)
        return self._blocks[block][1] + k * self.page_bytes

    def bytes_of(self, page: int) -> U8:
        """Its bytes, a view."""
        block, k = divmod(page, self._block_pages)
        return self._blocks[block][0][k * self.page_bytes : (k + 1) * self.page_bytes]

    def recount(self, held: Iterable[int]) -> None:
        """Owners and free pages from the pages that are held, each as often as it is held."""
        owners = [0] * (len(self._blocks) * self._block_pages)
        for page in held:
            owners[page] += 1
        self._owners = owners
        bare = {page for page in self._bare if not owners[page]}
        self._bare = sorted(bare, reverse=True)
        self._free = [p for p, n in enumerate(owners) if n == 0 and p not in bare][::-1]

    @property
    def free(self) -> int:
        """Pages with memory that nobody holds."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Pages that somebody holds."""
        return len(self._owners) - len(self._free) - len(self._bare)

    @property
    def memory(self) -> int:
        """Bytes that its pages may take."""
        return (len(self._owners) - len(self._bare)) * self.page_bytes
