"""Control groups of our own, below the one that we are in: limits that the kernel enforces."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from quant import cgroup


@contextlib.contextmanager
def group(controller: str, **files: object):
    """A new group with these files written; yields what a child calls to join it.

    controller: "memory" or "cpu"; files: by version, `v1={name: value}`, `v2={name: value}`.
    """
    for version, folder in cgroup.folders("/", controller):
        path = Path(folder) / f"gguf-runtime-test-{os.getpid()}-{time.monotonic_ns():x}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            for name, value in files[f"v{version}"].items():
                (path / name).write_text(str(value))
        except OSError:
            path.rmdir()
            continue

        def join(path=path):
            (path / "cgroup.procs").write_text("0")

        try:
            yield join
        finally:
            for _ in range(100):  # until the kernel has let go of its last process
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.05)
        return
    pytest.skip(f"no control group for {controller} can be made here: it takes root or delegation")
