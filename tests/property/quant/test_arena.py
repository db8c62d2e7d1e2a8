"""One piece of memory for many packs, and what `fill` writes into it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from quant import packing
from quant.errors import QuantError
from quant.memory import HUGE, allocate
from quant.packing import arena, fill
from quant.pool import Pool
from quant.types import TYPES

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def address(a):
    return a.__array_interface__["data"][0]


def test_packs_of_an_arena_lie_side_by_side_in_their_order():
    sizes = [100, 1, 5 << 20, 64, 4096]

    parts = arena(sizes)

    starts = [address(p) for p in parts]
    assert [len(p) for p in parts] == sizes
    assert starts[0] % HUGE == 0
    for start, size, following in zip(starts, sizes, starts[1:], strict=False):
        assert start + size <= following < start + size + packing.ALIGNED
        assert following % 64 == 0


def test_an_empty_arena_has_no_parts():
    assert arena([]) == []


def test_packs_get_memory_of_their_own_where_one_block_is_not_to_be_had(monkeypatch):
    def short(size, huge=False):
        if size > 2 << 20:
            raise QuantError("the system gives no memory")
        return allocate(size, huge)

    monkeypatch.setattr(packing, "allocate", short)

    parts = arena([1 << 20, 2 << 20, 3])

    assert [len(p) for p in parts] == [1 << 20, 2 << 20, 3]
    assert not any(p.any() for p in parts)


@pytest.mark.skipif(
    not THP.exists() or "[never]" in THP.read_text(), reason="this system has no huge pages"
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_small_packs_lie_in_huge_pages_together():
    parts = arena([300_000] * 30)
    for part in parts:
        part[:] = 1

    first, huge = address(parts[0]), 0
    for area in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", area)
        if match and int(match[1], 16) <= first < int(match[2], 16):
            huge = 1024 * int(re.search(r"AnonHugePages: +(\d+)", area)[1])
    # All but the last, incomplete one; a machine without free huge pages gives fewer.
    if huge == 0:
        pytest.skip("no huge page is free")
    assert huge >= HUGE


@pytest.mark.parametrize("threads", [0, 2])
def test_fill_writes_the_strips_of_every_part(threads):
    rng = np.random.default_rng(3)
    parts, expected = [], []
    for t, rows in zip(TYPES.values(), [16, 5, 40, 64, 33, 16, 31, 48, 1, 17, 80], strict=False):
        n_blocks = 256 // t.values
        blocks = rng.integers(0, 256, (rows, n_blocks, t.bytes), dtype=np.uint8)
        expected.append(t.format.pack(blocks).reshape(-1))
        wide = np.zeros((rows, n_blocks * t.bytes * 2), np.uint8)
        wide[:, : n_blocks * t.bytes] = blocks.reshape(rows, -1)
        parts.append((np.empty_like(expected[-1]), wide[:, : n_blocks * t.bytes], t))

    if threads:
        with Pool(threads) as pool:
            fill(parts, pool)
    else:
        fill(parts)

    for (data, _, t), right in zip(parts, expected, strict=True):
        assert np.array_equal(data, right), t.name
