"""A warm start: what it imports, what it costs, and what the program sets for its own process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

WARM_CPU_S = 0.6 * 5  # the promise times five, for a loaded machine
# Objects of x86-64 Linux are put into memory without LLVM.
NEVER = ("numba", "rich", "pydantic", "logging") + (
    ("llvmlite",) if (sys.platform, platform.machine()) == ("linux", "x86_64") else ()
)
PROGRAM = "import os, sys; from gguf_runtime.cli.app import main; sys.argv[1:] = ['--version']; "


@pytest.fixture(scope="module")
def warm(model_path):
    """The words of a warm answer of one token."""
    words = [sys.executable, "-X", "importtime", "-m", "gguf_runtime", "run"]
    words += [str(model_path("smollm2")), "-p", "hi", "-n", "1"]
    subprocess.run(words, capture_output=True, check=True, env=plain())
    return words


def plain(**more: str) -> dict[str, str]:
    unset = ("OPENBLAS_NUM_THREADS", "GGUF_RUNTIME_EXACT")
    return {k: v for k, v in os.environ.items() if k not in unset} | more


@pytest.mark.model("smollm2")
def test_a_warm_answer_imports_no_compiler_and_nothing_to_render_with(warm):
    done = subprocess.run(warm, capture_output=True, text=True, check=True, env=plain())

    rows = [line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line]
    assert "numpy" in rows
    assert not {row.split(".")[0] for row in rows}.intersection(NEVER)


@pytest.mark.model("smollm2")
def test_a_warm_answer_costs_little_cpu(warm):
    before = os.times()
    subprocess.run(warm, capture_output=True, check=True, env=plain())
    after = os.times()

    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    assert spent < WARM_CPU_S


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, "1"),
        ({"OPENBLAS_NUM_THREADS": "3"}, "3"),  # the user's word counts
        ({"GGUF_RUNTIME_EXACT": "1"}, "None"),  # exact arithmetic is BLAS's work
    ],
)
def test_the_program_has_no_blas_threads_that_it_does_not_need(environment, threads):
    program = PROGRAM + "main(); print(os.environ.get('OPENBLAS_NUM_THREADS'))"

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=plain(**environment),
    )

    assert done.stdout.splitlines()[-1] == threads


def test_the_library_leaves_the_process_as_it_is():
    program = (
        "import gc, os; before = gc.get_threshold(); from gguf_runtime import Model;"
        "print(gc.get_threshold() == before, os.environ.get('OPENBLAS_NUM_THREADS'))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=plain()
    )

    assert done.stdout.split() == ["True", "None"]
