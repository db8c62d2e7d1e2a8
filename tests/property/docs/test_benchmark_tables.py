"""Tables of benchmarks: every kept record can be shown, and its place on the pages exists."""

import importlib
import sys
from xml.etree import ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
# A record's file and the function that makes its table.
TABLES = {
    "kernels": ("kernels_table", "markdown"),
    "peers": ("peers_table", "markdown"),
    "busy": ("busy", "table"),
    "threads": ("threads", "table"),
    "start": ("start", "tables"),
    "reuse": ("reuse", "tables"),
    "batch": ("batch", "table"),
}
BLOCKS = [*TABLES, "kernels-avx2", "peers-1b", "peers-avx2", "peers-avx2-1b"]


@pytest.fixture
def bench(monkeypatch):
    """Modules of bench/, which is no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and BENCH in Path(sys.modules[name].__file__).parents:
            del sys.modules[name]


@pytest.mark.parametrize("name", TABLES)
def test_every_kept_record_can_be_shown(name, bench):
    module, function = TABLES[name]
    path = BENCH / "results" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} has no record yet")
    show = getattr(bench(module), function)

    # Older records may lack what newer ones have; the last is the one that pages are made of.
    text = show(bench("record").every(path)[-1])

    assert "\n|" in text


def test_the_short_table_names_every_engine_and_model(bench):
    block_of, kept = bench("peers_table").block_of, bench("record").every
    every = kept(BENCH / "results" / "peers.jsonl")
    record = [r for r in every if block_of(r) == "peers"][-1]  # the one that README shows

    text = bench("peers_summary").markdown(record)

    head = next(x for x in text.splitlines() if x.startswith("|"))
    assert [c.strip() for c in head.split("|")[2:-1]] == list(record["engines"])
    assert all(f"**{m['file']}**" in text for m in record["models"].values())
    assert "mean KL" in text


@pytest.mark.parametrize("block", BLOCKS)
def test_pages_have_a_place_for_every_table(block):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    assert page.count(f"<!-- {block}:begin -->") == page.count(f"<!-- {block}:end -->") == 1


def test_the_roofline_is_a_picture_of_all_types(bench):
    path = BENCH / "results" / "kernels.jsonl"
    record = next(r for r in reversed(bench("record").every(path)) if "shape" in r)

    root = ElementTree.fromstring(bench("roofline").svg(record))

    words = [e.text for e in root.iter() if e.tag.endswith("text")]
    for name in record["types"]:
        assert sum(w.split()[0] == name for w in words) == 2  # its GEMV and its GEMM


def test_labels_beside_points_are_a_line_apart(bench):
    roofline = bench("roofline")

    rows = roofline._apart([100.0, 101.0, 102.0, 300.0])

    assert [b - a >= roofline.LINE for a, b in zip(rows, rows[1:], strict=False)] == [True] * 3
    assert sum(rows[:3]) / 3 == pytest.approx(101.0)
    assert rows[3] == 300.0
