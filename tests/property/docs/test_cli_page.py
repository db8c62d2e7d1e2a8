"""docs/cli.md is what the program says, and names what the program reads."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def generator():
    spec = importlib.util.spec_from_file_location("cli_page", ROOT / "docs" / "cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_command_line_is_not_stale():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "cli.py"), "--check"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_variable_that_the_program_reads_is_on_the_page():
    files = [p for d in ("gguf_runtime", "quant") for p in (ROOT / d).rglob("*.py")]
    read = {w for p in files for w in re.findall(r'"(GGUF_RUNTIME_[A-Z]+)"', p.read_text())}

    assert len(read) >= 5
    assert read - set(generator().VARIABLES) == set()
