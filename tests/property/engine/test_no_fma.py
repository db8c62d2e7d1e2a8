"""A CPU without fma answers like the others, within what two roundings instead of one cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime import Model
from quant import cpu

TINY = Path(__file__).parents[2] / "data" / "archs" / "quant-llama-q4_k_m.gguf"
IDS = list(range(4, 36))
PROGRAM = """
import sys, numpy as np
from gguf_runtime import Model
with Model(sys.argv[1], context=64, threads=1) as m:
    assert m.isa == "nofma", m.isa
    np.save(sys.argv[2], m.logits([int(i) for i in sys.argv[3].split()]))
    print(*(n.code for n in m.notices))
"""


@pytest.mark.skipif(cpu.NO_FMA not in cpu.supported(), reason="kernels without fma are x86-64's")
def test_logits_without_fma_are_within_a_thousandth_and_it_is_said(tmp_path: Path) -> None:
    out = tmp_path / "logits.npy"
    words = [sys.executable, "-c", PROGRAM, str(TINY), str(out), " ".join(map(str, IDS))]
    env = os.environ | {"GGUF_RUNTIME_ISA": cpu.NO_FMA}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "no-fma" in done.stdout
    with Model(TINY, context=64, threads=1) as m:
        exact = m.logits(IDS)
    assert np.abs(np.load(out) - exact).max() <= 1e-3 * np.abs(exact).max()
