"""What the program takes is what was planned: weights stay quantized in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_runtime import Model

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
ROW = re.compile(r"^\| ([\w-]+) \| ([\d,]+) \|" + r" (\d+) MB \|" * 5 + "$", re.MULTILINE)
OFF = 0.1  # by how much a figure of the table may be off, and 2 MB

ROOM = 120_000_000  # for Python, numpy, kernels and buffers, beside the weights and the cache
AGREE = 0.1  # of the plan, either way
HANG_S = 300

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak")

# Not ru_maxrss: it begins with what the process had that started this one.
RUN = """
import sys
from bench.memory import peak_bytes
from gguf_runtime.cli.app import main
sys.argv[0] = "gg"
code = main()
print(peak_bytes(), file=sys.stderr)
raise SystemExit(code)
"""
FILL = """
import sys
from bench.memory import measure
plan, peak = measure(sys.argv[1], int(sys.argv[2]), threads=2, pack_cache=False)
print(plan.total, peak)
"""


def python(script, *args):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        env=os.environ | {"GGUF_RUNTIME_EXACT": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.mark.model("smollm2")
def test_the_peak_of_a_run_is_the_weights_the_cache_and_120_megabytes(model_path):
    path = model_path("smollm2")
    plan = Model.plan(path, 2048, threads=2)

    done = python(RUN, "run", path, "Hi", "-c", 2048, "-n", 16, "-t", 2, "--temperature", 0)

    assert int(done.stderr.split()[-1]) <= plan.weights + plan.cache + ROOM


@pytest.mark.model("smollm2")
@pytest.mark.model("gemma-3-270m")
@pytest.mark.parametrize(
    ("name", "context"),
    [("smollm2", 512), ("smollm2", 8192), ("gemma-3-270m", 4096), ("gemma-3-270m", 32768)],
)
def test_the_plan_is_the_measured_peak_within_a_tenth(model_path, name, context):
    total, peak = map(int, python(FILL, model_path(name), context).stdout.split())

    assert abs(peak - total) <= AGREE * total, f"planned {total:,}, measured {peak:,}"


def test_the_memory_table_of_the_readme_is_what_is_planned(model_path):
    rows = ROW.findall(README.read_text(encoding="utf-8"))

    assert len(rows) == 4
    for name, context, *told in rows:
        plan = Model.plan(model_path(name), int(context.replace(",", "")), threads=2)
        planned = [plan.weights, plan.cache, plan.buffers, plan.program, plan.total]
        for n, t in zip(planned, told, strict=True):
            assert abs(n / 1e6 - int(t)) <= OFF * int(t) + 2, (name, context, planned)
