"""The program without a model: help, versions, near misses, streams."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gguf_runtime.cli.app import COMMANDS
from gguf_runtime.cli.dispatch import load_command
from gguf_runtime.cli.parse import OLD_SPELLINGS

HEAVY = ("numpy", "numba", "llvmlite", "rich", "pydantic", "jinja2")
HELP_CPU_S = 0.15 * 5  # the promise times five, for a loaded machine


def imports_of(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gguf_runtime", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}


def test_help_imports_nothing_heavy():
    assert not imports_of("--help").intersection([*HEAVY, "typer"])


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_of_a_command_imports_nothing_heavy(row):
    assert not imports_of(row.name, "--help").intersection(HEAVY)


def test_help_costs_little_cpu():
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "gguf_runtime", "--help"], capture_output=True, check=True
    )
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    assert spent < HELP_CPU_S


def test_no_arguments_show_help_with_three_examples(gg):
    done = gg()
    assert done.code == 0
    assert done.out == gg("--help").out == gg("help").out
    assert (
        sum(line.startswith("  ") and " gg " in f" {line}" for line in done.out.splitlines()) >= 3
    )


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_of_a_command_names_every_option_and_no_old_spelling(gg, row):
    done = gg(row.name, "--help")
    assert done.code == 0
    assert done.err == ""
    assert "usage: gguf-runtime " + row.name in done.out
    assert "\x1b" not in done.out
    for param in load_command(row).params:
        for name in param.opts if param.param_type_name == "option" else ():
            assert (f"{name} " in done.out.replace("\n", " ").replace(",", " ")) == (
                name not in OLD_SPELLINGS
            ), name
    assert done.out == gg("help", row.name).out


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_of_a_command_ends_with_examples_of_it(gg, row):
    _, _, examples = gg(row.name, "--help").out.partition("\nexamples:\n")
    lines = examples.splitlines()
    assert 2 <= len(lines) <= 3
    assert all(line.startswith("  ") for line in lines)
    assert any(f"gg {row.name} " in f"{line} " for line in lines)


def test_version_gives_python_numba_and_instruction_set(gg):
    done = gg("--version")
    assert done.code == 0
    assert done.out.startswith("gguf-runtime ")
    assert "Python 3." in done.out
    assert "numba 0." in done.out
    assert "isa generic)" in gg("--version", GGUF_RUNTIME_ISA="generic").out


def test_a_near_miss_of_a_command_gets_a_suggestion(gg):
    done = gg("pul", "smollm2")
    assert done.code == 2
    assert done.out == ""
    assert "did you mean gguf-runtime pull?" in done.err


def test_a_near_miss_of_an_option_gets_a_suggestion(gg):
    done = gg("list", "--jsn")
    assert done.code == 2
    assert "did you mean --json?" in done.err


def test_an_unknown_word_points_at_help(gg):
    done = gg("zzzz")
    assert done.code == 2
    assert "gguf-runtime --help" in done.err


def test_an_option_without_meaning_here_gets_one_sentence(gg):
    done = gg("list", "-ngl", "99")
    assert done.code == 2
    assert done.err == "error: -ngl has no meaning here: there is no GPU to give layers to\n"


def test_a_missing_argument_is_named(gg):
    done = gg("pull")
    assert done.code == 2
    assert "NAME is missing" in done.err


def test_an_unknown_model_gets_the_nearest_name(gg):
    done = gg("pull", "smolm2")
    assert done.code == 3
    assert "did you mean smollm2?" in done.err


def test_flags_may_stand_before_the_command(gg):
    assert gg("--quiet", "--no-color", "list").code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_exit_code_7():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gguf_runtime", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 7
    assert done.stderr == "error: the output cannot be written: no space left on device\n"


def test_a_closed_pipe_ends_quietly():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gguf_runtime", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == ""


def test_output_is_utf8_in_any_locale(gg):
    done = gg("list", "--json", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert done.err == ""
