"""Fixtures of all tests: the golden folder, the weights of catalog models, an isolated program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HANG_S = 300  # a call of the program that takes longer hangs

# A job in the background of a shell is started with SIGINT ignored, and what it starts inherits
# that; the tests of Ctrl-C need it to arrive.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Finished:
    """What a call of the program left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of stored references."""
    folder = os.environ.get("GGUF_RUNTIME_GOLDEN")
    if not folder or not Path(folder).is_dir():
        pytest.skip("GGUF_RUNTIME_GOLDEN names no folder of stored references")
    return Path(folder)


@pytest.fixture(scope="session")
def model_path():
    """A function from a catalog name to its file; skips where it was not pulled."""
    from gguf_runtime.hub.catalog import entries

    def find(name: str) -> Path:
        entry = entries()[name]
        if not entry.present:
            pytest.skip(f"{name} is not on this machine: gguf-runtime pull {name}")
        return entry.path

    return find


@pytest.fixture
def gg(tmp_path):
    """Calls the program as a person would: `gg("list", "--json", stdin="…")`.

    HOME is empty; models and compiled kernels are this machine's.
    """
    from gguf_runtime.hub.places import models_dir

    models = str(models_dir())

    def call(*args: str, stdin: str | bytes | None = None, **env: str) -> Finished:
        environment = os.environ | {"HOME": str(tmp_path), "COLUMNS": "80"}
        environment.pop("FORCE_COLOR", None)
        environment.pop("XDG_STATE_HOME", None)
        environment.setdefault("GGUF_RUNTIME_MODELS", models)
        environment.setdefault(
            "XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        )
        done = subprocess.run(
            [sys.executable, "-m", "gguf_runtime", *args],
            env=environment | env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
