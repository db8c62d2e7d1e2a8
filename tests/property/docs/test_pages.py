"""The pages name what exists: files, links, make targets, types, architectures, messages, tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gguf_runtime.arch.table import ARCHITECTURES
from gguf_runtime.errors import ExitCode
from quant.simd.isa import TARGETS
from quant.types import TYPES

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"\bmake ([a-z][a-z0-9-]*)")
TREES = ("quant/", "gguf_runtime/", "tests/", "docs/", "bench/", "models/", "arch/", "engine/")
SHORT = {"arch/": "gguf_runtime/arch/", "engine/": "gguf_runtime/engine/"}
PATH = re.compile(r"[\w./-]+")
pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@pages
def test_files_that_a_page_names_exist(page):
    named = [c.split("::")[0] for c in CODE.findall(prose(page))]
    paths = [c for c in named if c.startswith(TREES) and PATH.fullmatch(c) and "NAME" not in c]

    missing = [p for p in paths if not _exists(p)]

    assert missing == []


def _exists(path: str) -> bool:
    if (ROOT / path).exists():
        return True
    return any(
        path.startswith(s) and (ROOT / (t + path[len(s) :])).exists() for s, t in SHORT.items()
    )


@pages
def test_links_lead_somewhere(page):
    targets = LINK.findall(prose(page))

    assert [t for t in targets if not (page.parent / t).exists()] == []


@pages
def test_make_targets_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(MAKE.findall(" ".join(CODE.findall(prose(page)))))
    named |= set(MAKE.findall("\n".join(FENCE.findall(page.read_text(encoding="utf-8")))))

    assert named - targets == set()


@pages
def test_a_line_of_a_page_is_a_sentence(page):
    text = re.sub(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", "", prose(page), flags=re.DOTALL)
    lines = [l for l in text.splitlines() if not l.startswith(("|", "#", "<"))]

    joined = [l for l in lines if re.search(r"[a-z)`»]\. +[A-Z][a-z]", l)]

    assert joined == []


def test_the_readme_names_every_type_architecture_instruction_set_and_exit_code():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {l.split("|")[1].strip(): l for l in text.splitlines() if l.startswith("|")}
    types = CODE.findall(next(row for name, row in rows.items() if name.startswith("Weight types")))
    isas = {isa for isa, _ in TARGETS}
    codes = {int(c) for name in rows for c in re.findall(r"^\d+$|^\d+(?=,)|(?<=, )\d+$", name)}

    assert sorted(types) == sorted(TYPES)
    assert CODE.findall(rows["Architectures"]) == sorted(ARCHITECTURES)
    assert set(CODE.findall(rows["Instruction sets"])) - {"gg doctor"} == isas
    assert codes == {int(c) for c in ExitCode}


def test_tests_that_a_page_names_exist():
    named = {c for page in PAGES for c in CODE.findall(prose(page)) if "::" in c}
    missing = []
    for name in sorted(named):
        path, _, test = name.partition("::")
        file = ROOT / path
        if not (file.is_file() and re.search(rf"^def {test}\(", file.read_text(), re.MULTILINE)):
            missing.append(name)

    assert len(named) > 50
    assert missing == []


def test_known_issues_has_a_row_for_every_fault_of_its_three_kinds():
    text = (ROOT / "docs" / "known-issues-elsewhere.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([GNT]\d+) \|.*::test_", text, re.MULTILINE)

    wanted = [*(f"G{n}" for n in range(1, 22)), *(f"N{n}" for n in range(1, 9))]
    assert rows == [*wanted, *(f"T{n}" for n in range(1, 12))]


def test_the_table_of_blocks_has_the_sizes_of_every_type():
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = [[c.strip() for c in l.split("|")[1:5]] for l in text.splitlines() if l.startswith("|")]
    told = {r[0]: (int(r[1]), int(r[2]), float(r[3])) for r in rows if r[1].isdecimal()}

    assert told == {t.name: (t.values, t.bytes, 8 * t.bytes / t.values) for t in TYPES.values()}


def test_messages_of_the_troubleshooting_page_are_in_the_source():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    heads = [l for l in page.splitlines() if l.startswith("`") and l.endswith(":")]
    messages = [m for l in heads for m in CODE.findall(l)]
    files = [p for d in ("quant", "gguf_runtime") for p in (ROOT / d).rglob("*.py")]
    # Text of one message may stand in several literals, one per line.
    source = re.sub(r'"\s*\n\s*f?"', "", "\n".join(p.read_text() for p in files))

    missing = [m for m in messages if not all(part.strip() in source for part in re.split("…", m))]

    assert len(messages) > 20
    assert missing == []
