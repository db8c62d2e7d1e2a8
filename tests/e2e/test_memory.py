"""What the program takes is what was planned: weights stay quantized in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_runtime import Model

README = Path(__file__).resolve().parents[2] / "README.md"
ROW = re.compile(r"^\| ([\w-]+) \| ([\d,]+) \|" + r" (\d+) MB \|" * 4 + "$", re.MULTILINE)
OFF = 0.1  # by how much a figure of the table may be off, and 2 MB

ROOM = 300_000_000  # for Python, numpy, kernels and buffers, beside the file and the cache

PROBE = r"""
import re, sys
from gguf_runtime import Model
with Model(sys.argv[1], threads=1, context=4096) as m:
    m.complete("Hi", max_tokens=2, temperature=0, raw=True)
    # Not ru_maxrss: it begins with what the process had that started this one.
    peak = re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())
    print(Model.plan(sys.argv[1], 4096).cache, int(peak[1]) * 1024)
"""


@pytest.mark.model("smollm2")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak")
def test_the_peak_of_memory_is_the_file_the_cache_and_300_megabytes(model_path):
    path = model_path("smollm2")

    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)],
        env=os.environ | {"GGUF_RUNTIME_EXACT": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )

    cache, peak = (int(n) for n in done.stdout.split())
    assert peak <= path.stat().st_size + cache + ROOM


def test_the_memory_table_of_the_readme_is_what_is_planned(model_path):
    rows = ROW.findall(README.read_text(encoding="utf-8"))

    assert len(rows) == 4
    for name, context, *told in rows:
        plan = Model.plan(model_path(name), int(context.replace(",", "")), threads=2)
        planned = [plan.weights, plan.cache, plan.buffers, plan.total]
        for n, t in zip(planned, told, strict=True):
            assert abs(n / 1e6 - int(t)) <= OFF * int(t) + 2, (name, context, planned)
