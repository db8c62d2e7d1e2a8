"""The same bits on every instruction set: digests of tiny and real models beside the stored ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from quant import cpu
from tests.digests import REAL, ROOT, TINY, compute, stored

HANG_S = 1800  # kernels may have to be compiled first, on a machine that does other work
LOWER = cpu.exact()[:-1]
# What lower instruction sets show in `make test`: floats with a window; K types, heads and spans.
SOME = ("gemma3/int8/f16", "quant-llama-q4_k_m/int8/f16")


@pytest.mark.parametrize("case", TINY)
def test_tiny_models_give_the_stored_bits(case):
    assert compute(case) == stored()[case]


@pytest.mark.parametrize("case", REAL)
def test_real_models_give_the_stored_bits(case, model_path):
    assert compute(case, model_path(case.split("/")[0])) == stored()[case]


@pytest.mark.parametrize("isa", LOWER)
def test_lower_instruction_sets_give_the_stored_bits(isa):
    check(isa, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LOWER)
def test_lower_instruction_sets_give_the_stored_bits_of_every_tiny_model(isa):
    check(isa, TINY)


def check(isa, cases):
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "digests.py", *cases],
        env=os.environ | {"GGUF_RUNTIME_ISA": isa},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        c: stored()[c] for c in cases
    }
