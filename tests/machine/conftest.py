"""Kernels for other processors: compiled here, run under an emulator where that is set up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMPILE_S, EMULATE_S = 300, 900  # a process that takes longer hangs


@pytest.fixture(scope="session")
def tools():
    """The folder with the scripts that set up emulators."""
    folder = Path(os.environ.get("GGUF_RUNTIME_TOOLS") or ROOT.parent / "shared" / "tools")
    if not folder.is_dir():
        pytest.skip(f"no emulator scripts: GGUF_RUNTIME_TOOLS={folder} is no folder")
    return folder


@pytest.fixture(scope="session")
def cross(tmp_path_factory):
    """cross(isa, arch, *kernels): {kernel: path of its object}, or of its assembly with suffix=".s"."""
    done = {}

    def compile_for(isa, arch, *kernels, suffix=".o"):
        key = isa, arch, suffix, kernels
        if key not in done:
            done[key] = tmp_path_factory.mktemp(f"{arch}-{isa}")
            command = [sys.executable, HERE / "cross.py", isa, arch, done[key], suffix, *kernels]
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_S, cwd=ROOT, check=False
            )
            assert result.returncode == 0, result.stderr[-3000:]
        return {text: done[key] / f"{text.replace(':', '-')}{suffix}" for text in kernels}

    return compile_for


@pytest.fixture(scope="session")
def arm(tools):
    """arm(cpu, *arguments): run Python on an emulated 64-bit Arm processor; its stdout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ARM64_DIR") or cache / "gguf-runtime-arm64")
    if not (folder / "pyvenv.cfg").is_file():
        pytest.skip(f"no emulated Arm processor in {folder}: make test-arm sets it up")

    def run(cpu, *arguments):
        command = ["sh", tools / "arm64.sh", "run", folder, "--", "python3", *arguments]
        result = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=EMULATE_S,
            cwd=ROOT,
            env=os.environ | {"ARM64_CPU": cpu},
            check=False,
        )
        assert result.returncode == 0, result.stderr[-3000:]
        return result.stdout

    return run
