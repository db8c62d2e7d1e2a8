"""Commands and Python of README.md and docs/: they do what the pages say."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _load():
    spec = importlib.util.spec_from_file_location("transcripts", ROOT / "docs" / "transcripts.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["transcripts"] = module
    spec.loader.exec_module(module)
    return module


transcripts = _load()
COMMANDS = [c for page in transcripts.PAGES for c in transcripts.commands(page) if c.runs]


@pytest.mark.model("smollm2")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c.page}: {c.line}"[:70])
def test_a_command_of_a_page_prints_what_the_page_says(command, model_path):
    model_path("smollm2")

    ran = transcripts.run(command.line)

    assert transcripts.wrong(command, ran) is None


@pytest.mark.model("smollm2")
def test_the_python_of_the_readme_runs(model_path, tmp_path):
    model_path("smollm2")
    (source,) = PYTHON.findall((ROOT / "README.md").read_text())
    env = transcripts.environment(tmp_path)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=transcripts.HANG_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The primary colours are:")
    assert "tokens were not read again" in done.stdout
