"""Fixtures of the runner's tests."""

import sys
from pathlib import Path

import pytest

from quant import jit, pool_kernels

HERE = str(Path(__file__).parent)
NAMES = ("tally", "note_thread", "read_state", "write_state")


@pytest.fixture(scope="session")
def kernels():
    """The runner's kernels by spec, those of runner_kernels.py by name: addresses."""
    sys.path.insert(0, HERE)  # worker processes get it too
    try:
        import runner_kernels

        specs = {name: getattr(runner_kernels, name).spec() for name in NAMES}
        loaded = jit.load([*pool_kernels.SPECS, *specs.values()])
    finally:
        sys.path.remove(HERE)
    return loaded | {name: loaded[spec] for name, spec in specs.items()}
