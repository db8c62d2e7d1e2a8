"""Shell completion: what may follow the words so far, and the scripts that ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gguf_runtime.cli.app import COMMANDS
from gguf_runtime.cli.completion import SCRIPTS, completion, following


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of models with one file of its own, and nothing elsewhere."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "my model.gguf").write_bytes(b"GGUF")
    for name in ("HOME", "XDG_DATA_HOME", "HF_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("GGUF_RUNTIME_MODELS", str(models))
    return tmp_path


def test_a_command_is_completed():
    assert following(["re"]) == ["replay"]
    assert following(["--quiet", "ins"]) == ["inspect"]
    assert {row.name for row in COMMANDS} <= set(following([""]))


@pytest.mark.parametrize("command", ["run", "chat", "show", "pull", "tokenize"])
def test_models_are_completed(here, command):
    assert following([command, ""]) == ["gemma-3-270m", "my model", "smollm2"]
    assert following([command, "smo"]) == ["smollm2"]


def test_only_the_first_argument_of_run_is_a_model(here):
    assert following(["run", "-n", "5", "--temp", "0", "sm"]) == ["smollm2"]
    assert following(["run", "smollm2", ""]) == []


def test_options_and_their_values_are_completed():
    assert following(["run", "m", "--max-t"]) == ["--max-time", "--max-tokens"]
    assert following(["run", "m", "--on-overflow", ""]) == ["error", "stop", "trim"]
    assert following(["completion", ""]) == ["bash", "fish", "zsh"]
    assert "--temp" not in following(["run", "m", "--te"])
    assert following(["replay", "r.json", "--model", "sm"]) == ["smollm2"]


def test_what_is_unknown_completes_to_nothing():
    assert following(["nonsense", ""]) == []
    assert following(["run", "m", "--stop", ""]) == []


@pytest.fixture
def shell_path(tmp_path):
    """A PATH whose `gg` is this program."""
    shim = tmp_path / "bin" / "gg"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gguf_runtime "$@"\n')
    shim.chmod(0o755)
    return f"{shim.parent}:{os.environ['PATH']}"


def shell(name: str, script: str, path: str) -> list[str]:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"there is no {name} here")
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["-N"]}[name]
    done = subprocess.run(
        [program, *quiet, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["gg", "repl"], ["replay"]),
        (["gg", "run", "my"], ["my\\ model"]),
        (["gg", "run", "m", "--on-overflow", "t"], ["trim"]),
        (["gg", "run", "ollama", ":", "x"], []),
    ],
)
def test_bash_completes(here, shell_path, words, found):
    script = (
        f'eval "$(gg completion bash)"; COMP_WORDS=({" ".join(words)}); '
        f"COMP_CWORD={len(words) - 1}; _gg_words; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )

    assert [line for line in shell("bash", script, shell_path) if line] == found


def test_bash_is_given_the_part_behind_a_colon(here, monkeypatch):
    """To bash a colon ends a word, and what is completed is the last word alone."""
    monkeypatch.setattr("gguf_runtime.cli.completion.models", lambda: ["hf:org/a", "hf:org/b", "c"])
    lines: list[str] = []
    monkeypatch.setattr(
        "gguf_runtime.cli.completion.current", lambda: SimpleNamespace(line=lines.append)
    )

    completion("bash", ["run", "hf", ":", "org/"])
    completion("bash", ["run", "hf", ":"])
    completion("zsh", ["run", "hf:org/a"])

    assert lines == ["org/a", "org/b", "org/a", "org/b", "hf:org/a"]


def test_fish_completes(here, shell_path):
    script = 'gg completion fish | source; complete --do-complete "gg repl"'

    assert [w.split("\t")[0] for w in shell("fish", script, shell_path)] == ["replay"]


def test_zsh_completes(shell_path):
    script = (
        'compdef() { :; }; compadd() { print -l -- "${(@P)2}" }; _files() { print files };'
        'eval "$(gg completion zsh)"; words=(gg repl); CURRENT=2; _gg_words;'
        "words=(gg run m x); CURRENT=4; _gg_words"
    )

    assert shell("zsh", script, shell_path) == ["replay", "files"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_says_where_it_belongs(gg, name):
    done = gg("completion", name)

    assert done.code == 0
    assert f"# {name}: gg completion {name} > " in done.out
    assert gg("completion", "tcsh").code == 2
