"""docs/python.md: every example runs, names everything that is public, and calls options that exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import gguf_runtime
from gguf_runtime import Model
from tests.tiny import with_template

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
NAMED_ELSEWHERE = {"Info", "Notice", "Timings", "Usage"}  # fields of what is shown


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tiny model with a template, at hand as `smollm2`."""
    path = with_template(tmp_path_factory.mktemp("models") / "talker.gguf")
    with Model(path, context=2048, threads=2) as m:
        yield m


@pytest.mark.parametrize("code", BLOCKS, ids=lambda c: c.strip().splitlines()[-1][:40])
def test_the_example_runs(code, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"m": small, "Model": Model, "__name__": "example"}
    out = io.StringIO()

    with contextlib.redirect_stdout(out):
        exec(compile(code.replace('"smollm2"', repr(str(small.path))), str(PAGE), "exec"), names)

    if names["m"] is not small:
        names["m"].close()
    assert bool(out.getvalue()) >= ("print(" in code)


def test_every_public_name_is_shown():
    text = PAGE.read_text(encoding="utf-8")

    missing = [n for n in gguf_runtime.__all__ if not re.search(rf"\b{n}\b", text)]

    assert set(missing) <= NAMED_ELSEWHERE


def test_every_method_of_a_model_is_shown():
    text = PAGE.read_text(encoding="utf-8")
    own = ("backend", "prepare", "request", "start")  # for benchmarks, tests and Chat

    methods = [n for n in dir(Model) if not n.startswith("_") and n not in own]

    assert [n for n in methods if not re.search(rf"\b{n}\b", text)] == []
