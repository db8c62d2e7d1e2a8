"""Wheels of a package index, fetched by pip: of this interpreter, of its ensurepip, or by uv.

pip is asked because it knows the person's index, proxy, certificates and credentials. Wheels only,
without dependencies, so nothing of a package is ever executed. `hub/pip_session.py` goes on where
an earlier try ended; where pip is built otherwise than that script knows, `pip download` remains.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguf_runtime.errors import DownloadError, MachineError

POLL_S = 0.2
TAIL_LINES = 3  # of pip's own words in an error
SCRATCH = "scratch"
SESSION = Path(__file__).with_name("pip_session.py")

Tick = Callable[[int], None]


def download(requirement: str, folder: Path, tick: Tick) -> Path:
    """Fetch one wheel into `folder`, on the same file system all the way.

    Args:
        requirement: `name==version`.
        folder: exists and is writable; the wheel and pip's temporary files stay below it. What an
            earlier call left there is continued.
        tick: called now and then with the bytes that are on disk so far.

    Raises:
        DownloadError: no pip and no uv, a wrong digest, or what pip said.
        MachineError: the disk is full or may not be written.
    """
    scratch = folder / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        python, extra = _python()
        answer, log = _session(python, extra, requirement, folder, scratch, tick)
        if "wheel" in answer:
            return Path(answer["wheel"])
        if answer.get("error") != "pip":
            raise _failure(answer, requirement, log)
        return _plain(python, extra, requirement, folder, scratch, tick)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def partial_bytes(folder: Path) -> int:
    """Bytes of the wheels in `folder` that are not whole yet."""
    return sum(p.stat().st_size for p in folder.glob("*.whl*.part"))


def _python() -> tuple[list[str], dict[str, str]]:
    """The command line of a Python that has pip, and what its environment needs for that."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable], {}
    bundled = _bundled_pip()
    if bundled is not None:  # environments of uv and pipx have no pip; pip runs from its wheel
        return [sys.executable], {"PYTHONPATH": str(bundled)}
    uv = shutil.which("uv")
    if uv is None:
        raise DownloadError(
            "this Python has neither pip nor ensurepip, and uv is not on PATH",
            where=sys.executable,
            hint="install pip for it (Debian: apt install python3-pip), or uv",
        )
    return [uv, "tool", "run", "--quiet", "--from", "pip", "python"], {}


def _bundled_pip() -> Path | None:
    """The wheel of pip that comes with Python."""
    spec = importlib.util.find_spec("ensurepip")
    folders = [Path(spec.origin).parent / "_bundled"] if spec is not None and spec.origin else []
    shared = sysconfig.get_config_var("WHEEL_PKG_DIR")  # where a system keeps it instead
    if spec is not None and shared:
        folders.append(Path(shared))
    return next((p for f in folders for p in sorted(f.glob("pip-*.whl"))), None)


def _session(
    python: list[str],
    extra: dict[str, str],
    requirement: str,
    folder: Path,
    scratch: Path,
    tick: Tick,
) -> tuple[dict[str, Any], str]:
    """What `pip_session.py` answers, and its words on stderr."""
    command = [*python, str(SESSION), requirement, str(folder)]
    out, log = _run(command, extra, scratch, lambda: tick(partial_bytes(folder)))
    try:
        answer = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError, RecursionError):
        answer = {"error": "pip", "words": "no answer"}
    return (answer if isinstance(answer, dict) else {"error": "pip"}), log


def _plain(
    python: list[str],
    extra: dict[str, str],
    requirement: str,
    folder: Path,
    scratch: Path,
    tick: Tick,
) -> Path:
    """What `pip download` fetches, from its first byte on."""
    out = scratch / "out"
    out.mkdir()
    command = [*python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(out), requirement]
    words, log = _run(command, extra, scratch, lambda: tick(_largest_wheel(scratch)))
    found = list(out.glob("*.whl"))
    if len(found) != 1:
        raise _failure({"error": "network", "words": ""}, requirement, words + log)
    wheel = folder / found[0].name
    os.replace(found[0], wheel)
    return wheel


def _run(
    command: list[str], extra: dict[str, str], scratch: Path, tick: Callable[[], None]
) -> tuple[str, str]:
    """stdout and stderr of a command that ends when this process does."""
    # pip unpacks into TMPDIR: below our folder the growth of the download can be watched,
    # and the free space that was checked is the one that is used.
    env = os.environ | {"TMPDIR": str(scratch), "TMP": str(scratch), "TEMP": str(scratch)}
    env |= extra
    paths = scratch / "stdout", scratch / "stderr"
    with (
        paths[0].open("wb") as out,
        paths[1].open("wb") as err,
        subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=out, stderr=err
        ) as process,
    ):
        try:
            while process.poll() is None:
                tick()
                time.sleep(POLL_S)
        except BaseException:
            process.terminate()
            raise
    out_text, err_text = (p.read_text(encoding="utf-8", errors="replace") for p in paths)
    return out_text, err_text


def _failure(answer: dict[str, Any], requirement: str, log: str) -> DownloadError | MachineError:
    words = str(answer.get("words", ""))
    kind = answer.get("error")
    if kind == "disk":
        return MachineError(
            f"the download cannot be written: {words.lower()}",
            where=requirement,
            hint="free some space, or name another folder: export GGUF_RUNTIME_MODELS=/some/folder",
        )
    if kind == "digest":
        return DownloadError(
            f"{words} is not the file that the index describes (bytes 0 to {answer['size']:,});"
            f" kept as {answer['kept']}",
            where=requirement,
            expected=answer["expected"],
            got=answer["got"],
            hint="pull again: what is whole is kept, this file is fetched anew",
        )
    lines = [line.strip() for line in [*log.splitlines(), words] if line.strip()]
    errors = [x.removeprefix("ERROR:").strip() for x in lines if x.startswith("ERROR:")]
    unreachable = ("connection", "retrying", "timeout", "timed out", "resolution")
    network = any(word in x.lower() for x in lines for word in unreachable)
    return DownloadError(
        "the package index cannot be reached" if network else "pip could not fetch this package",
        where=requirement,
        got="; ".join((errors or lines)[-TAIL_LINES:])[:400] or "no words from pip",
        hint="is the network there? a proxy or another index is set as for pip: pip config list",
    )


def _largest_wheel(folder: Path) -> int:
    """Size of the largest wheel: pip copies it from its own place to ours at the end."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):  # pip moved it meanwhile
                    largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest
