"""Whole tiny models on an emulated Arm processor: the bits that every other CPU gives."""

import platform
import subprocess
import sys

import pytest

from tests.digests import ROOT, TINY, stored

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() in ("arm64", "aarch64"), reason="this is Arm: the other tests run there"
    ),
]
HERE = ROOT / "tests" / "machine"
COMPILE_S = 900
SOME = ("gemma3/int8/f16", "quant-llama-q4_k_m/int8/f16", "quant-qwen3-q4_0/int16/f32")
# The generic kernels must do without the dot product, which this processor lacks.
CASES = [("neondot", "apple-m1", TINY), ("generic", "cortex-a72", SOME)]


@pytest.mark.parametrize(("isa", "processor", "cases"), CASES, ids=["neondot", "generic"])
def test_tiny_models_give_the_stored_bits_on_arm(isa, processor, cases, arm, tmp_path):
    command = [sys.executable, HERE / "cross_model.py", isa, "aarch64", tmp_path, *cases]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILE_S, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]

    out = arm(processor, HERE / "emulated_model.py", isa, tmp_path, *cases)

    assert dict(line.split() for line in out.splitlines()) == {c: stored()[c] for c in cases}
