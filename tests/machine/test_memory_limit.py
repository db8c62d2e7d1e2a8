"""Models in control groups with little memory: refused with figures, or run from a file of packs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_runtime import Model
from tests.machine.groups import group

ROOT = Path(__file__).parents[2]
LIMIT = 120_000_000  # weights alone are 96 MB, the rest 65 MB
HANG_S = 300

PROBE = """
import json, re, sys
from gguf_runtime import MachineError, Model
def memory(word):
    return int(re.search(word + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
try:
    with Model(sys.argv[1], threads=2, context=int(sys.argv[2]), pack_cache=len(sys.argv) > 3) as m:
        out = m.complete("The capital of France is", max_tokens=4, temperature=0, raw=True)
        facts = {"ids": out.ids, "notices": [n.code for n in m.notices], "anon": memory("RssAnon")}
        facts["weights"], facts["available"] = m.memory.weights, m.memory.available
        print(json.dumps(facts))
except MachineError as e:
    print(json.dumps({"error": str(e)}))
"""


def run(join, path, context, *more, cache):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path), str(context), *more],
        preexec_fn=join,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GGUF_RUNTIME_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout)


@pytest.fixture
def cache(tmp_path):
    """A cache folder of its own, with this machine's kernels."""
    tmp_path.chmod(0o700)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gguf-runtime"
    for kernels in base.glob("kernels-*"):
        (tmp_path / kernels.name).mkdir(mode=0o700)
        for f in kernels.iterdir():
            os.link(f, tmp_path / kernels.name / f.name)
    return tmp_path


@pytest.mark.model("smollm2")
@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux")
def test_a_model_larger_than_its_memory_limit_runs_from_a_file_of_packs(model_path, cache):
    path = model_path("smollm2")
    with Model(path, threads=2, context=512) as m:
        expected = m.complete("The capital of France is", max_tokens=4, temperature=0, raw=True).ids
    limits = {"v1": {"memory.limit_in_bytes": LIMIT}, "v2": {"memory.max": LIMIT}}
    with group("memory", **limits) as join:
        refused = run(join, path, 512, cache=cache)
        assert "does not fit into memory" in refused["error"]
        assert re.search(r"96 MB weights \+ \d+ MB cache", refused["error"])

        for _ in range(2):
            done = run(join, path, 512, "packs", cache=cache)
            assert done["ids"] == expected
            assert done["notices"] == ["weights-beyond-memory"]
            assert done["anon"] < done["weights"]  # the weights are no memory of its own
