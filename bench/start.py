"""Processor time of short programs, from their start to their end: `make bench-start`.

    .venv/bin/python bench/start.py [--models smollm2,gemma-3-270m] [--reps 10] [--write]

Page cache and kernels are warm. CPU seconds are user and system of the process and its threads, the
best of all turns: waiting and what other programs take are not in them. Programs take turns. A
second table, from `-X importtime`, says what each import of a warm answer costs. Tables on stderr,
one JSON line on stdout and in bench/results/start.jsonl; `--write` puts them into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import record as records  # noqa: E402
import workers  # noqa: E402

from gguf_runtime.hub.resolve import resolve  # noqa: E402

RESULTS = records.RESULTS / "start.jsonl"
PROGRAM = (sys.executable, "-m", "gguf_runtime")
LEAST_MS = 1.0  # of an import that has a line of its own
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)")


def answer(model: str) -> tuple[str, ...]:
    """A warm answer of one token."""
    return (*PROGRAM, "run", str(resolve(model)), "-n", "1", "--temperature", "0", "hi")


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Wall and CPU seconds of every program in turns, and milliseconds of imports."""
    models = a.models.split(",")
    programs = {
        "python -c pass": (sys.executable, "-c", "pass"),
        "gg --help": (*PROGRAM, "--help"),
        **{f"gg run {name} -n 1": answer(name) for name in models},
    }
    environment = workers.own().environment
    found: dict[str, dict[str, list[float]]] = {n: {"wall_s": [], "cpu_s": []} for n in programs}
    for rep in range(-1, a.reps):
        for name, command in programs.items():
            spent = workers.spend(command, environment)
            if rep >= 0:
                found[name]["wall_s"].append(round(spent.wall_s, 4))
                found[name]["cpu_s"].append(round(spent.cpu_s, 4))
    record = records.facts("quant", "gguf_runtime") | {"programs": found}
    record["imports_ms"] = {
        "gg --help": imports(programs["gg --help"], environment),
        f"gg run {models[0]} -n 1": imports(answer(models[0]), environment),
    }
    return record


def imports(command: tuple[str, ...], environment: dict[str, str]) -> dict[str, float]:
    """Milliseconds by package at the top, those of packages that it imports not counted: best of 5."""
    turns = [_imports(command, environment) for _ in range(5)]
    return {name: min(t.get(name, 0.0) for t in turns) for name in turns[0]}


def _imports(command: tuple[str, ...], environment: dict[str, str]) -> dict[str, float]:
    python, *rest = command
    run = subprocess.run(
        [python, "-X", "importtime", *rest],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = {}
    for own, module in _LINE.findall(run.stderr):
        top = module.split(".")[0]
        kind = top if top in sys.stdlib_module_names or top[0] != "_" else "(others)"
        name = "(standard library)" if kind in sys.stdlib_module_names else kind
        found[name] = found.get(name, 0.0) + int(own) / 1000
    return found


def tables(r: dict[str, Any]) -> str:
    """Programs, then imports."""
    lines = [
        records.system_line(r),
        "",
        "| program | CPU s, best | wall s, median (range) |",
        "|---|--:|--:|",
    ]
    for name, x in r["programs"].items():
        wall = x["wall_s"]
        shown = f"{statistics.median(wall):.2f} ({min(wall):.2f}-{max(wall):.2f})"
        lines.append(f"| `{name}` | {min(x['cpu_s']):.2f} | {shown} |")
    kinds = list(r["imports_ms"])
    lines += ["", "| imports, ms | " + " | ".join(f"`{k}`" for k in kinds) + " |"]
    lines.append("|---|" + "--:|" * len(kinds))
    names = {
        n: max(r["imports_ms"][k].get(n, 0.0) for k in kinds)
        for k in kinds
        for n in r["imports_ms"][k]
    }
    for name in sorted(names, key=lambda n: -names[n]):
        if names[name] >= LEAST_MS:
            cells = (r["imports_ms"][k].get(name) for k in kinds)
            lines.append(f"| {name} | " + " | ".join(f"{x:.1f}" if x else "" for x in cells) + " |")
    turns = len(next(iter(r["programs"].values()))["cpu_s"])
    lines += [
        "",
        f"{turns} turns; page cache and kernels warm. An import's time is that of its own modules"
        " (`-X importtime`, which slows each a little), the best of 5.",
    ]
    return "\n".join(lines)


def main() -> int:
    a = records.arguments(__doc__ or "", 10, RESULTS).parse_args()
    r = measure(a)
    records.publish(a, "start", r, tables(r))
    return 0


if __name__ == "__main__":
    sys.exit(main())
