"""Packs the matrices of a file: into one piece of memory, by all threads, while the file is read.

Packs lie side by side in the order in which a token reads them. The file is worked off in windows:
while one is packed the system reads the next, and the pages of those before are let go, so that
memory holds the packs and little more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gguf_runtime.graph.weights import Weight
from quant import packing_kernels
from quant.jit import Spec
from quant.packing import Pack, arena, fill
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

WINDOW_BYTES = 32 << 20  # of the file, packed in one native call
Progress = Callable[[str, int, int], None]  # what, done, of how many


class Piece(NamedTuple):
    """Strips of a weight that are packed at a time, and their rows of the file's tensor."""

    weight: Weight
    strips: range
    rows: range

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.rows) * self.weight.qtype.row_bytes(self.weight.k)


def specs_of(weights: Sequence[Weight]) -> list[Spec]:
    """The kernels that pack these weights."""
    return [packing_kernels.pack_strip.spec(name) for name in {w.qtype.name: 0 for w in weights}]


def packed_bytes(weight: Weight) -> int:
    """Bytes of a matrix in strips."""
    return -(-weight.rows // 16) * strip_bytes(weight)


def strip_bytes(weight: Weight) -> int:
    """Bytes of 16 rows."""
    return 16 * weight.qtype.row_bytes(weight.k)


def pack_all(
    file: GGUFFile, weights: Sequence[Weight], pool: Pool, progress: Progress | None = None
) -> dict[Weight, Pack]:
    """Every weight as a pack.

    Args:
        file: read once; its pages are let go.
        weights: matrices, in the order in which a token reads them.
        progress: called as ("loading weights", bytes done, bytes in all).

    Raises:
        QuantError: the system has no memory for them, or a kernel cannot be had.
    """
    memory = dict(zip(weights, arena([packed_bytes(w) for w in weights]), strict=True))
    windows = [*cut(weights), []]
    done, total = 0, sum(piece.size_bytes for window in windows for piece in window)
    for window, following in pairwise([[], *windows]):
        for piece in following:
            file.fetch(piece.weight.tensor, piece.rows)
        parts = []
        for w, strips, rows in window:
            data = memory[w][strips.start * strip_bytes(w) : strips.stop * strip_bytes(w)]
            parts.append((data, file.tensor_bytes(w.tensor)[rows.start : rows.stop], w.qtype))
        fill(parts, pool)
        for piece in window:
            file.release(piece.weight.tensor, piece.rows)
            done += piece.size_bytes
        if progress is not None and window:
            progress("loading weights", done, total)
    return {
        w: Pack(w.qtype, w.rows, w.k, -(-w.rows // 16), strip_bytes(w), data)
        for w, data in memory.items()
    }


def cut(weights: Sequence[Weight]) -> list[list[Piece]]:
    """The weights' strips in windows of about `WINDOW_BYTES`, in order."""
    windows: list[list[Piece]] = [[]]
    room = WINDOW_BYTES
    for w in weights:
        n_strips, at = -(-w.rows // 16), 0
        while at < n_strips:
            if room < strip_bytes(w) and windows[-1]:
                windows.append([])
                room = WINDOW_BYTES
            n = min(n_strips - at, max(1, room // strip_bytes(w)))
            rows = range(w.first_row + 16 * at, w.first_row + min(16 * (at + n), w.rows))
            windows[-1].append(Piece(w, range(at, at + n), rows))
            room -= windows[-1][-1].size_bytes
            at += n
    return windows
