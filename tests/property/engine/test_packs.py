"""Packing a file: all strips, whatever the windows, and the file's pages are let go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gguf_runtime.arch.table import load
from gguf_runtime.engine import packs
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.plan import make_plan
from quant.pool import Pool
from tests.tiny import GEMMA3, QWEN3, SMALL


@pytest.mark.parametrize("window", [1, 5000, 1 << 30])
@pytest.mark.parametrize("path", [QWEN3, GEMMA3, SMALL], ids=lambda p: p.stem)
def test_every_matrix_is_packed_whatever_the_windows(monkeypatch, path, window):
    monkeypatch.setattr(packs, "WINDOW_BYTES", window)
    told = []
    with open_file(path) as file, Pool(2) as pool:
        weights = make_plan(load(file).graph).matrices()

        found = packs.pack_all(file, weights, pool, lambda *x: told.append(x))

        for w in weights:
            blocks = file.tensor_bytes(w.tensor)[w.first_row : w.first_row + w.rows]
            right = w.qtype.format.pack(blocks.reshape(w.rows, -1, w.qtype.bytes))
            assert np.array_equal(found[w].data, right.reshape(-1)), w.tensor
            assert (found[w].rows, found[w].k) == (w.rows, w.k)
    assert told[-1][1] == told[-1][2] == sum(w.rows * w.qtype.row_bytes(w.k) for w in weights)
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})


def test_windows_hold_every_strip_once_and_no_more_than_they_may(monkeypatch):
    monkeypatch.setattr(packs, "WINDOW_BYTES", 9000)
    with open_file(QWEN3) as file:
        weights = make_plan(load(file).graph).matrices()

        windows = packs.cut(weights)

    strips = [(p.weight, s) for window in windows for p in window for s in p.strips]
    assert strips == [(w, s) for w in weights for s in range(-(-w.rows // 16))]
    for window in windows:
        size = sum(p.size_bytes for p in window)
        assert size <= 9000 or len(window) == len(window[0].strips) == 1


def test_no_weights_are_no_packs():
    with open_file(QWEN3) as file, Pool(1) as pool:
        assert packs.pack_all(file, [], pool) == {}


@pytest.mark.model("smollm2")
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_pages_of_the_file_are_let_go_once_they_are_packed(model_path, monkeypatch):
    monkeypatch.setattr(packs, "WINDOW_BYTES", 8 << 20)
    path, resident = model_path("smollm2"), []

    def look(what, done, total):
        areas = Path("/proc/self/smaps").read_text().split(str(path))[1:]
        resident.append(sum(int(a.split("Rss:")[1].split()[0]) << 10 for a in areas))

    with open_file(path) as file, Pool(2) as pool:
        packs.pack_all(file, make_plan(load(file).graph).matrices(), pool, look)

    assert len(resident) > 8
    assert max(resident) < 24 << 20
