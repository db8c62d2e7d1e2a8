"""The default number of threads beside the best of a sweep: `make bench-threads`, on a machine that is free.

    .venv/bin/python bench/threads.py [--models smollm2] [--reps 7] [--write]

In every situation one process takes turns with 1, 2, 3, … threads, up to the CPUs of the machine (more
only take time from neighbours); the default is one of them. Situations: free; one allowed core; control groups with
1.75, 1.5, 1.25, 1.1 and half a CPU per period; a neighbour that takes one core at the same priority.
Control groups of version 1 or 2 take root; without them those rows are left out. Table on stderr, one
JSON line on stdout and in bench/results/threads.jsonl; `--write` puts the table into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import record as records  # noqa: E402

from quant import cgroup, cpu  # noqa: E402

RESULTS = records.RESULTS / "threads.jsonl"
PERIOD_US = 100_000
SHARES = 200_000  # of the processor, against 1,024 of others: the group has the machine to itself
PROMPT, ANSWER = 256, 96  # tokens of a turn: longer than a period of the control group
SITUATIONS = {
    "free": {},
    "one allowed core": {"cores": 1},
    "quota of 1.75 CPUs": {"quota": 1.75},
    "quota of 1.5 CPUs": {"quota": 1.5},
    "quota of 1.25 CPUs": {"quota": 1.25},
    "quota of 1.1 CPUs": {"quota": 1.1},
    "quota of 0.5 CPUs": {"quota": 0.5},
    "a neighbour on one core": {"neighbour": True},
}


@contextlib.contextmanager
def group(quota: float | None) -> Iterator[Path | None]:
    """A control group of our own; None where none can be made."""
    for version, folder in cgroup.folders("/", "cpu"):
        path = Path(folder) / f"gguf-runtime-bench-{os.getpid()}"
        limit = int(quota * PERIOD_US) if quota else -1
        files = {"cpu.cfs_quota_us": limit, "cpu.shares": SHARES}
        if version == 2:
            files = {"cpu.max": f"{limit if quota else 'max'} {PERIOD_US}", "cpu.weight": 10_000}
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            for name, value in files.items():
                (path / name).write_text(str(value))
            yield path
            return
        except PermissionError:
            continue
        finally:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.05)
    yield None


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of every turn, by model, situation, phase and number of threads."""
    record = records.facts("quant", "gguf_runtime") | {"prompt": PROMPT, "answer": ANSWER}
    record["models"] = {}
    for model in a.models.split(","):
        found = record["models"][model] = {}
        for name, how in SITUATIONS.items():
            if a.only and a.only not in name:
                continue
            with group(how.get("quota")) as where:
                if where is None and "quota" in how:
                    continue
                found[name] = _inside(model, how, where, a.reps)
    return record


def _inside(model: str, how: dict[str, Any], where: Path | None, reps: int) -> dict[str, Any]:
    """Run `sweep` in a process of its own, in the group, with the cores that it may use."""

    def enter() -> None:
        if where is not None:
            (where / "cgroup.procs").write_text("0")
        if "cores" in how:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: how["cores"]])

    code = [sys.executable, __file__, "--sweep", "--models", model, "--reps", str(reps)]
    neighbour = None
    if how.get("neighbour"):
        core = max(cpu.cores().allowed)
        spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        neighbour = subprocess.Popen([sys.executable, "-c", spin], preexec_fn=enter)
    try:
        done = subprocess.run(code, preexec_fn=enter, stdout=subprocess.PIPE, check=True)
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def sweep(model: str, reps: int) -> dict[str, Any]:
    """In this process: turns with every number of threads, one after the other, again and again."""
    from gguf_runtime import Model

    cores = cpu.cores()
    counts = sorted({*range(1, (os.cpu_count() or 1) + 1), cores.threads})
    models = {n: Model(model, threads=n, context=1024) for n in counts}
    speeds: dict[str, dict[int, list[float]]] = {p: {n: [] for n in counts} for p in PHASES}
    for rep in range(reps + 1):
        for n, m in models.items():
            for phase, turn in PHASES.items():
                speed = turn(m, rep)
                if rep:  # the first does not count
                    speeds[phase][n].append(round(speed, 2))
    for m in models.values():
        m.close()
    return {"default": cores.threads, "quota": cores.quota, "speeds": speeds}


def _prefill(model: Any, rep: int) -> float:
    ids = [5 + (k * 37 + rep * 101) % 20_000 for k in range(PROMPT)]
    with model.session() as s:
        begin = time.perf_counter()
        s.feed(ids)
        return PROMPT / (time.perf_counter() - begin)


def _decode(model: Any, rep: int) -> float:
    with model.session() as s:
        s.feed([5 + rep])
        begin = time.perf_counter()
        for k in range(ANSWER):
            s.feed([7 + k], copy=False)
        return ANSWER / (time.perf_counter() - begin)


PHASES = {"prefill": _prefill, "decode": _decode}


def table(record: dict[str, Any]) -> str:
    """A row per model, situation and phase."""
    lines = [
        _head(record),
        "",
        "| model | situation | phase | default | tok/s | best of the sweep | tok/s | default / best |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for model, situations in record["models"].items():
        for name, r in situations.items():
            for phase, by_count in r["speeds"].items():
                medians = {int(n): statistics.median(s) for n, s in by_count.items()}
                best = max(medians, key=lambda n: medians[n])
                default = r["default"]
                share = medians[default] / medians[best]
                lines.append(
                    f"| {model} | {name} | {phase} | {default} | {medians[default]:,.1f} | {best}"
                    f" | {medians[best]:,.1f} | {100 * share:.0f} % |"
                )
    return "\n".join(lines)


def _head(record: dict[str, Any]) -> str:
    return (
        f"{record['date'][:10]}, commit {record['commit']}. {record['cpu']}, {record['cores']} cores,"
        f" kernels {record['isa']}, {record['system']}, Python {record['python']}."
    )


def main() -> None:
    """Measure and publish, or sweep for the process that measures."""
    p = records.arguments(__doc__ or "", 7, RESULTS)
    p.set_defaults(models="smollm2")
    p.add_argument("--sweep", action="store_true", help="in this process alone, JSON on stdout")
    p.add_argument("--only", default="", help="situations with this in their name")
    a = p.parse_args()
    if a.sweep:
        print(json.dumps(sweep(a.models, a.reps)))
        return
    record = measure(a)
    records.publish(a, "threads", record, table(record))


if __name__ == "__main__":
    main()
