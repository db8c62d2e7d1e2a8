"""The commands that README.md and docs/ show: run again, and compared with what the pages say.

    python docs/transcripts.py            run every command, name those whose output differs
    python docs/transcripts.py --write    put today's output into the pages
    python docs/transcripts.py --seconds  measure the first and the second run of README.md's first command again

A block of a page that begins with ```console holds lines `$ command`, each followed by its output, stdout and stderr
together. Commands that use `gg` are run in an empty folder with this machine's models and kernels; others are prose.
With ```console varies only the exit code counts: figures and paths differ between machines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```console(?P<varies> varies)?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"(<!-- seconds:begin -->).*?(<!-- seconds:end -->)", re.DOTALL)
PROGRESS = re.compile(r"^(compiling kernels|loading weights)\b.*\n", re.MULTILINE)
HANG_S = 600


@dataclass(frozen=True)
class Command:
    """One `$` line of a page and what stands below it."""

    page: str
    line: str
    output: str
    varies: bool

    @property
    def runs(self) -> bool:
        """Whether it is one of ours."""
        words = shlex.split(self.line.replace("|", " | "))
        return "gg" in words or "gguf-runtime" in words


@dataclass(frozen=True)
class Ran:
    """What a command did: exit code, stdout and stderr as they came, seconds, seconds of processors."""

    code: int
    output: str
    seconds: float
    cpu: float


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, in order."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        for line, output in _split(block["body"]):
            yield Command(page.name, line, output, block["varies"] is not None)


def _split(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield line, output


def environment(bin_dir: Path, **more: str) -> dict[str, str]:
    """The environment of a transcript: `gg` is this checkout, models are this machine's."""
    sys.path.insert(0, str(ROOT))
    from gguf_runtime.hub.places import models_dir

    for name in ("gg", "gguf-runtime"):
        shim = bin_dir / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gguf_runtime "$@"\n')
        shim.chmod(0o700)
    env = os.environ | {
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GGUF_RUNTIME_MODELS": str(models_dir()),
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }
    for name in ("FORCE_COLOR", "GGUF_RUNTIME_EXACT", "GGUF_RUNTIME_ISA"):
        env.pop(name, None)
    return env | more


def run(line: str, **more: str) -> Ran:
    """Run a command line."""
    with tempfile.TemporaryDirectory() as folder:
        bin_dir = Path(folder) / "bin"
        bin_dir.mkdir()
        begin, used = time.perf_counter(), os.times()
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env=environment(bin_dir, **more),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HANG_S,
            check=False,
        )
        seconds, now = time.perf_counter() - begin, os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    return Ran(done.returncode, PROGRESS.sub("", done.stdout.decode()), seconds, cpu)


def wrong(command: Command, ran: Ran) -> str | None:
    """What does not agree with the page, if anything."""
    if ran.code:
        return f"{command.page}: `{command.line}` ends with {ran.code}:\n{ran.output}"
    if not command.varies and ran.output.strip() != command.output.strip():
        return f"{command.page}: `{command.line}` prints\n{ran.output}\nthe page says\n{command.output}"
    return None


def rewrite(page: Path) -> None:
    """Put today's output into the blocks of a page."""

    def block(match: re.Match[str]) -> str:
        varies = match["varies"] or ""
        parts = []
        for line, output in _split(match["body"]):
            command = Command(page.name, line, output, bool(varies))
            if command.runs:
                ran = run(line)
                if ran.code:
                    raise SystemExit(f"{page.name}: {line} ends with {ran.code}:\n{ran.output}")
                output = ran.output if ran.output.endswith("\n") or not ran.output else ran.output + "\n"
            parts.append(f"$ {line}\n{output}")
        return f"```console{varies}\n{''.join(parts)}```"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(block, text), encoding="utf-8")


def time_again(page: Path) -> None:
    """Measure the first command of a page and write the seconds into its block."""
    text = page.read_text(encoding="utf-8")
    first = next(c for c in commands(page) if c.runs)
    told = seconds(first.line)
    page.write_text(SECONDS.sub(lambda m: f"{m[1]}\n{told}\n{m[2]}", text), encoding="utf-8")


def seconds(line: str) -> str:
    """How long a command takes without compiled kernels, and with them (median of five)."""
    ran = run(line)  # so that the model's file is in the system's cache for both
    if ran.code:
        raise SystemExit(f"{line} ends with {ran.code}:\n{ran.output}")
    with tempfile.TemporaryDirectory() as cache:
        cold = run(line, GGUF_RUNTIME_CACHE=cache)
        warm = sorted(run(line, GGUF_RUNTIME_CACHE=cache).seconds for _ in range(5))[2]
    facts = [cpu_name(), f"{os.cpu_count()} cores", time.strftime("%Y-%m-%d")]
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) != os.SCHED_OTHER:
        facts.append("at real-time priority beside other work")
    return (
        f"The first command took {cold.seconds:.1f} s at its first run, which compiles kernels and keeps them"
        f" ({cold.cpu:.0f} s of processor time), and {warm:.1f} s from then on.\nMeasured on {', '.join(facts)}."
    )


def cpu_name() -> str:
    """The processor as the system names it."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "unknown processor"


def main() -> int:
    """Check, or write."""
    faults = 0
    if "--seconds" in sys.argv[1:]:
        time_again(ROOT / "README.md")
        return 0
    for page in PAGES:
        if "--write" in sys.argv[1:]:
            rewrite(page)
            continue
        for command in commands(page):
            if command.runs and (fault := wrong(command, run(command.line))):
                faults += 1
                print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
