"""Nothing but `pull` speaks to the network, whatever the model's name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.tiny import with_template

HANG_S = 300
FAMILIES = re.compile(r"sa_family=(AF_INET6?|AF_NETLINK)")


@pytest.fixture
def traced(tmp_path):
    """Families of the addresses that a call of the program and its children connect to."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace here")
    log = tmp_path / "connections"

    def call(*words: str, stdin: str = "", code: int = 0, **env: str) -> set[str]:
        command = [strace, "-f", "-qq", "-e", "trace=connect", "-o", str(log)]
        done = subprocess.run(
            [*command, sys.executable, "-m", "gguf_runtime", *words],
            input=stdin.encode(),
            env=os.environ | {"HF_TOKEN": ""} | env,
            capture_output=True,
            check=False,
            timeout=HANG_S,
        )
        if b"ptrace" in done.stderr:
            pytest.skip("strace may not trace here")
        assert done.returncode == code, done.stderr
        return set(FAMILIES.findall(log.read_text()))

    return call


def test_commands_that_use_a_model_connect_to_nothing(traced, tmp_path):
    model = str(with_template(tmp_path / "m.gguf"))
    calls = (
        (["run", model, "-p", "a", "-n", "2"], "", 0),
        (["chat", model, "-n", "2"], "a\nb\n", 0),
        (["batch", model, "-", "-o", "-", "-n", "2"], '{"prompt": "a"}\n', 0),
        (["list", "--found"], "", 0),
        (["inspect", model], "", 0),
        (["run", "hf:org/not-here", "-p", "a"], "", 3),
        (["run", "ollama:not-here", "-p", "a"], "", 3),
        (["pull", "hf:org/not-here", "--offline"], "", 5),
    )
    for words, stdin, code in calls:
        assert traced(*words, stdin=stdin, code=code) == set(), words


def test_pull_does_connect_which_shows_that_this_test_would_see_it(traced):
    words = ("pull", "hf:org/not-here")
    assert traced(*words, code=5, HF_ENDPOINT="http://127.0.0.1:9", NO_PROXY="*") == {"AF_INET"}
