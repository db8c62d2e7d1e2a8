"""What every benchmark's record holds, where records are kept, and the blocks of pages that show them.

A record is one JSON line in `bench/results/<name>.jsonl`, appended. A page shows a record between
`<!-- name:begin -->` and `<!-- name:end -->`; `--write` of a benchmark fills that in.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from quant import cpu

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PERFORMANCE = ROOT / "docs" / "performance.md"


def arguments(doc: str, reps: int, results: Path) -> argparse.ArgumentParser:
    """The options that every benchmark of whole models has. doc: of its module."""
    p = argparse.ArgumentParser(description=doc.split(":")[0])
    p.add_argument("--models", default="smollm2,gemma-3-270m", help="names or paths, by commas")
    p.add_argument("--reps", type=int, default=reps)
    p.add_argument("--write", action="store_true", help="the tables into docs/performance.md")
    p.add_argument("--out", type=Path, default=results)
    return p


def publish(a: argparse.Namespace, block: str, record: dict[str, Any], tables: str) -> None:
    """Tables to stderr, the record to stdout and its file, with --write the tables to the page."""
    print(tables, file=sys.stderr)
    keep(record, a.out)
    if a.write:
        show(PERFORMANCE, block, tables)


def facts(*sources: str) -> dict[str, Any]:
    """Date, commit and machine. sources: folders whose uncommitted changes make it `dirty`."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", *sources)),
        "cpu": cpu_name(),
        "isa": cpu.isa(),
        "cores": len(cpu.cores().performance),
        "cache_bytes": max((c.size_bytes for c in cpu.caches()), default=0),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "scheduling": scheduling(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }


def _git(*words: str) -> str:
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def cpu_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def scheduling() -> str:
    """Whether this run goes before other processes, which its figures should say."""
    if not hasattr(os, "sched_getscheduler"):
        return "normal"
    policy = {os.SCHED_FIFO: "real time (fifo)", os.SCHED_RR: "real time (round robin)"}
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return policy.get(os.sched_getscheduler(0), f"nice {nice}" if nice else "normal")


def system_line(r: dict[str, Any]) -> str:
    """Machine, date and commit of a record, in one line for a page."""
    dirty = " with changes" if r["dirty"] else ""
    first = "" if r["scheduling"] == "normal" else f", {r['scheduling']}"
    return (
        f"{r['date'][:10]}, commit {r['commit']}{dirty}. {r['cpu']}, {r['cores']} cores,"
        f" {r['cache_bytes'] >> 20} MB last-level cache, kernels {r['isa']}, {r['system']},"
        f" Python {r['python']}{first}."
    )


def keep(record: dict[str, Any], path: Path) -> None:
    """Append to the results, and print as the last line of stdout."""
    line = json.dumps(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as f:
        f.write(line + "\n")
    print(line)


def every(path: Path) -> list[dict[str, Any]]:
    """All records of a file, the oldest first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def last(path: Path) -> dict[str, Any]:
    """The last record of a file."""
    return every(path)[-1]


def show(page: Path, name: str, text: str) -> bool:
    """Put a text between the marks `name` of a page; whether the page has them."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    old = page.read_text(encoding="utf-8")
    if begin not in old:
        return False
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(f"{before}{begin}\n{text.rstrip()}\n{end}{after}", encoding="utf-8")
    return True
