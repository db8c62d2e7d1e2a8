"""What the program takes is what was planned: weights stay quantized in memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROOM = 300_000_000  # for Python, numpy, kernels and buffers, beside the file and the cache

PROBE = """
import resource, sys
from gguf_runtime import Model
with Model(sys.argv[1], threads=1, context=4096) as m:
    m.complete("Hi", max_tokens=2, temperature=0, raw=True)
    print(Model.plan(sys.argv[1], 4096).cache, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.model("smollm2")
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
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
