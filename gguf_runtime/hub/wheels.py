"""Wheels of a package index, fetched by pip: of this interpreter, of a temporary venv, or by uv.

pip is asked because it knows the person's index, proxy, certificates and credentials. It runs
without dependencies and takes wheels only, so nothing of a package is ever executed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gguf_runtime.errors import DownloadError

POLL_S = 0.2
TAIL_LINES = 3  # of pip's own words in an error


def download(requirement: str, folder: Path, tick: Callable[[int], None]) -> Path:
    """Fetch one wheel into `folder`, on the same file system all the way.

    Args:
        requirement: `name==version`.
        folder: exists and is writable; the wheel and pip's temporary files stay below it.
        tick: called now and then with the bytes that are on disk so far.

    Raises:
        DownloadError: no pip and no uv, or what pip said.
    """
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    out = scratch / "out"
    out.mkdir(parents=True)
    try:
        with _pip(scratch) as pip:
            command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
            command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
            _run([*command, "--dest", str(out), requirement], requirement, scratch, tick)
        found = list(out.glob("*.whl"))
        if len(found) != 1:
            raise DownloadError(
                "pip reported success without a wheel", where=requirement, got=f"{len(found)} files"
            )
        wheel = folder / found[0].name
        os.replace(found[0], wheel)
        return wheel
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _pip(scratch: Path) -> Iterator[list[str]]:
    """The command line that starts a pip."""
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
        return
    venv = scratch / "venv"
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, check=False
    )
    if made.returncode == 0:
        python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        yield [str(python), "-m", "pip"]
        return
    uv = shutil.which("uv")
    if uv is None:
        raise DownloadError(
            "this Python has no pip, cannot make a virtual environment, and uv is not on PATH",
            where=sys.executable,
            hint="python -m ensurepip, or install uv",
        )
    yield [uv, "tool", "run", "--quiet", "pip"]


def _run(command: list[str], requirement: str, scratch: Path, tick: Callable[[int], None]) -> None:
    # pip unpacks into TMPDIR: below our folder the growth of the download can be watched,
    # and the free space that was checked is the one that is used.
    env = os.environ | {"TMPDIR": str(scratch), "TMP": str(scratch), "TEMP": str(scratch)}
    log = scratch / "log"
    with (
        log.open("wb") as words,
        subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=words, stderr=words
        ) as process,
    ):
        try:
            while process.poll() is None:
                tick(_bytes_below(scratch))
                time.sleep(POLL_S)
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise _refusal(requirement, log.read_text(encoding="utf-8", errors="replace"))


def _refusal(requirement: str, log: str) -> DownloadError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [x.removeprefix("ERROR:").strip() for x in lines if x.startswith("ERROR:")]
    network = any("connection" in x.lower() or "retrying" in x.lower() for x in lines)
    return DownloadError(
        "the package index cannot be reached" if network else "pip could not fetch this package",
        where=requirement,
        got="; ".join((errors or lines)[-TAIL_LINES:])[:400] or "no words from pip",
        hint="is the network there? a proxy or another index is set as for pip: pip config list",
    )


def _bytes_below(folder: Path) -> int:
    """Size of the largest wheel: pip copies it from its own place to ours at the end."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):  # pip moved it meanwhile
                    largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest
