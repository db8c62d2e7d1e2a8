"""Speed while another process takes one of the cores: `make bench-busy`, on a machine that is free.

    .venv/bin/python bench/busy.py [--models smollm2,gemma-3-270m] [--reps 7] [--write]

A process that only counts is bound to the last core that this one may use, at the same priority,
and is stopped in every other turn: idle, busy, idle, busy. Of 2 cores it leaves three quarters of
the machine. Table on stderr, one JSON line on stdout and in bench/results/busy.jsonl; `--write`
puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import record as records  # noqa: E402
import workers  # noqa: E402

from gguf_runtime.hub.resolve import resolve  # noqa: E402
from quant import cpu  # noqa: E402

RESULTS = records.RESULTS / "busy.jsonl"
WANTED = 0.45  # of the idle speed
SETTLE_S = 0.3  # after the other process began or stopped
IDS = range(3, 32_000)


class Spinner:
    """A process that does nothing else than take a core; stopped at first."""

    def __init__(self, core: int) -> None:
        code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self._process = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(SETTLE_S)
        self.stop()

    def go(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        time.sleep(SETTLE_S)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(SETTLE_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of every turn, by model, state and phase."""
    record = records.facts("quant", "gguf_runtime") | {
        "threads": a.threads,
        "prompt": a.prompt,
        "decode": a.decode,
        "models": {},
    }
    spinner = Spinner(max(cpu.cores().allowed))
    try:
        for name in a.models.split(","):
            record["models"][name] = one_model(a, resolve(name), spinner)
    finally:
        spinner.close()
    return record


def one_model(a: argparse.Namespace, file: Path, spinner: Spinner) -> dict[str, Any]:
    ids = random.Random(1).choices(IDS, k=a.prompt + a.decode)
    worker = workers.Worker(workers.own())
    worker.ask("load", model=str(file), threads=a.threads, context=len(ids) + 8, flash="")
    worker.ask("fill", ids=[])
    tps: dict[str, dict[str, list[float]]] = {
        state: {"prefill": [], "decode": []} for state in ("idle", "busy")
    }
    for rep in range(-1, a.reps):
        for state, speeds in tps.items():
            if state == "busy":
                spinner.go()
            turn = worker.ask("turn", ids=ids, depth=0, prompts=[a.prompt], n_decode=a.decode)
            if state == "busy":
                spinner.stop()
            if rep >= 0:
                speeds["prefill"].append(a.prompt / turn["seconds"][str(a.prompt)])
                speeds["decode"].append(a.decode / turn["seconds"]["decode"])
    worker.close()
    return {"file": file.name, "tps": tps}


def table(r: dict[str, Any]) -> str:
    """Medians with ranges, and the share of the idle speed that is left."""
    lines = [
        records.system_line(r),
        "",
        "| model | phase | idle, t/s | one core taken, t/s | left |",
        "|---|---|--:|--:|--:|",
    ]
    for m in r["models"].values():
        for phase, words in (
            ("prefill", f"prefill {r['prompt']}"),
            ("decode", f"decode {r['decode']}"),
        ):
            idle, busy = (m["tps"][state][phase] for state in ("idle", "busy"))
            left = statistics.median(busy) / statistics.median(idle)
            lines.append(
                f"| {m['file']} | {words} | {shown(idle)} | {shown(busy)} | {100 * left:.0f} % |"
            )
    turns = len(next(iter(r["models"].values()))["tps"]["idle"]["decode"])
    lines += [
        "",
        f"Medians (range) of {turns} turns, {r['threads']} threads, idle and busy in turns.",
    ]
    return "\n".join(lines)


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def main() -> int:
    p = records.arguments(__doc__ or "", 7, RESULTS)
    p.add_argument("--threads", type=int, default=cpu.cores().threads)
    p.add_argument("--prompt", type=int, default=256)
    p.add_argument("--decode", type=int, default=64)
    a = p.parse_args()
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit("error: this system cannot bind a process to a core")
    r = measure(a)
    records.publish(a, "busy", r, table(r))
    return 0


if __name__ == "__main__":
    sys.exit(main())
