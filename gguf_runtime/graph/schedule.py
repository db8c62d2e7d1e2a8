"""Who works on which part of attention: items for the kernel, and the rows that merge spans.

A run is consecutive tokens of one sequence in the flat batch. Its queries are cut into tiles whose
columns (query, head) share the loaded keys and values: as wide as leaves enough tiles for all
threads. With many tiles each item walks all spans of its queries and writes them merged; with few
(decode) every span is an item of its own, so that all threads have work, and a merge follows. Both
ways merge in the same order, so the choice changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.kernels.attention import SPAN
from gguf_runtime.kernels.attention_column import COLUMNS

I32 = NDArray[np.int32]

ENOUGH = 8  # items per thread, from which a run is cut no further
WIDTHS = (COLUMNS, COLUMNS // 2, COLUMNS // 4)  # columns of a tile, in order of preference


class Run(NamedTuple):
    """`n` tokens from token `first` of the batch on, at positions `pos`, pos + 1, …"""

    first: int
    n: int
    pos: int


@dataclass(frozen=True, slots=True)
class Heads:
    """A kind of attention: layers that share it share the items."""

    n_head: int
    n_head_kv: int
    head_dim: int
    window: int


@dataclass(frozen=True, slots=True)
class Items:
    """What the kernels of attention work off, as `kernels.attention` describes it."""

    items: I32  # (n, 8)
    merges: I32  # (m, 4)
    n_slots: int  # of `partial`, in use


def schedule(heads: Heads, runs: Sequence[Run], threads: int) -> Items:
    """The items of one step; every run has at least one token."""
    items: list[I32] = []
    merges: list[I32] = []
    n_slots = 0
    for run in runs:
        part, merge, n_slots = _run(heads, run, n_slots, ENOUGH * threads)
        items.append(part)
        merges.append(merge)
    return Items(np.concatenate(items), np.concatenate(merges), n_slots)


def _run(heads: Heads, run: Run, slot: int, enough: int) -> tuple[I32, I32, int]:
    """(items, merge rows, next free slot) of one run, whose slots begin at `slot`."""
    group = heads.n_head // heads.n_head_kv
    width = min(group, WIDTHS[-1])
    firsts = np.arange(0, group, width)  # head tiles inside a group
    n_tile = 1
    for columns in WIDTHS:
        n_tile = max(1, columns // width)
        if -(-run.n // n_tile) * len(firsts) * heads.n_head_kv >= enough:
            break
    starts = np.arange(0, run.n, n_tile)
    counts = np.minimum(n_tile, run.n - starts)
    low = run.pos + starts
    first_span = np.maximum(low - heads.window + 1, 0) // SPAN if heads.window else low * 0
    last_span = (low + counts - 1) // SPAN
    n_heads_tiles = len(firsts) * heads.n_head_kv
    whole = len(starts) * n_heads_tiles >= enough
    rows = []  # first token, tokens, first span, spans, slot
    merges: list[I32] = []
    for start, n, s0, s1 in zip(starts, counts, first_span, last_span, strict=True):
        if whole or s0 == s1:
            rows.append((run.first + start, n, s0, s1 - s0 + 1, -1))
            continue
        rows += [(run.first + start, n, s, 1, slot + (s - s0) * n) for s in range(s0, s1 + 1)]
        t = np.arange(n)
        pos = run.pos + start + t
        lo = np.maximum(pos - heads.window + 1, 0) // SPAN if heads.window else t * 0
        first_slot, n_spans = slot + (lo - s0) * n + t, pos // SPAN - lo + 1
        merge = np.stack([run.first + start + t, first_slot, n_spans, t * 0 + n], 1)
        merges.append(merge.astype(np.int32))
        slot += int(s1 - s0 + 1) * int(n)
    table = np.asarray(rows, np.int32)
    out = np.empty((len(table), n_heads_tiles, 8), np.int32)
    kv = np.arange(heads.n_head_kv).repeat(len(firsts))
    head = np.tile(firsts, heads.n_head_kv)
    out[:, :, 0:2] = table[:, None, 0:2]
    out[:, :, 2] = kv * group + head
    out[:, :, 3] = np.minimum(width, group - head)
    out[:, :, 4:7] = table[:, None, 2:5]
    out[:, :, 7] = kv
    # the longest items first: they are claimed in order
    flat = out.reshape(-1, 8)[::-1] if whole else out.reshape(-1, 8)
    merged = np.concatenate(merges) if merges else np.empty((0, 4), np.int32)
    return np.ascontiguousarray(flat), merged, slot
