"""What people read when something is wrong: the exact text, and a cure that works when it is typed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.provoked import ROWS, prepare

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 300
GG = 'gg() { "$PYTHON" -m gguf_runtime "$@"; }\n'


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    prepare(folder)
    return folder


@pytest.fixture
def sh(prepared, tmp_path):
    """Runs shell in a copy of the prepared folder; gives code and stderr."""
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder)
    kept = ("PATH", "GGUF_RUNTIME_CACHE", "GGUF_RUNTIME_EXACT", "LANG", "LC_ALL")
    environment = {k: os.environ[k] for k in kept if k in os.environ}
    environment |= {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "GGUF_RUNTIME_MODELS": "models",
        "COLUMNS": "80",
        "T": "-n 1 --temp 0",
    }

    def run(script: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", GG + script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, done.stderr.decode()

    return run


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command[:60])
def test_an_error_reads_as_written_and_its_cure_works(row, sh):
    code, err = sh(row.command)
    cured = sh(row.cure)

    assert code == row.code
    expected = ".*".join(map(re.escape, row.text.split("…")))
    assert re.fullmatch(expected, err.rstrip("\n")), err
    assert cured[0] == 0, cured[1]


def test_the_table_is_long_and_every_error_short():
    assert len(ROWS) >= 40
    for row in ROWS:
        first, *rest = row.text.splitlines()
        assert first.startswith("error: " if row.code != 6 else "notice: ")
        assert len(rest) <= 2
        assert all(line.startswith("  ") for line in rest)
        assert row.cause.endswith(".")
        assert row.cure != row.command


def test_every_exit_code_of_an_error_is_provoked():
    assert {row.code for row in ROWS} == {1, 2, 3, 4, 5, 6, 7}
