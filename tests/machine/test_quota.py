"""Quotas that the kernel enforces are found where this process really is."""

import json
import subprocess
import sys

import pytest

from quant import cpu
from tests.machine.bare import ROOT
from tests.machine.groups import group

PROBE = """
import json
from quant import cpu
c = cpu.cores()
print(json.dumps([c.quota, c.threads, c.rule[0]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux")
@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.1, 1), (1.5, 2)])
def test_a_real_control_group_decides_the_threads(quota, threads):
    us = int(quota * 100_000)
    files = {
        "v1": {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": us},
        "v2": {"cpu.max": f"{us} 100000"},
    }
    with group("cpu", **files) as join:
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            preexec_fn=join,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    found, n, rule = json.loads(done.stdout)
    cores = len(cpu.cores().performance)

    assert found == quota
    assert n == min(threads, cores)
    assert rule == "quota" or n == cores
