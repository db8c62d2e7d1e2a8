"""Planned and measured memory: `python -m bench.memory MODEL CONTEXT…`, a process per row.

A row loads the model, answers, and then writes to every page of a full sequence's cache and to the
tables of all its positions, which is what reading a prompt of that length touches, without the time
that it takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

HANG_S = 600


def peak_bytes() -> int:
    """The most that this process has had in memory (Linux)."""
    with open("/proc/self/status", encoding="ascii") as f:
        found = re.search(r"VmHWM:\s+(\d+) kB", f.read())
    assert found is not None
    return int(found[1]) * 1024


def fill(model: Any) -> None:
    """Write to all that a full context uses: a whole step's buffers, pages of the cache, tables."""
    stepper, n = model.backend.stepper, model.context
    model.logits([5 + k for k in range(min(stepper.n_batch, n))], "last")
    model.backend.forget()
    stepper.loaded.ropes_until(n)
    sequence = stepper.cache.sequence()
    for start in range(0, n, stepper.n_batch):
        step = min(stepper.n_batch, n - start)
        sequence.reserve(step)
        for arena, pages in zip(stepper.cache.arenas, sequence.pages, strict=True):
            for page in pages:
                if page >= 0:
                    arena.bytes_of(page)[::4096] = 1
        sequence.advance(step)
    sequence.close()


def measure(model: str, context: int, threads: int, pack_cache: bool) -> tuple[Any, int]:
    """(plan, peak in bytes) of one load in this process."""
    from gguf_runtime import Model

    with Model(model, threads=threads, context=context, pack_cache=pack_cache) as m:
        m.complete("The capital of France is", max_tokens=8, temperature=0, raw=True)
        fill(m)
        return m.memory, peak_bytes()


def main() -> None:
    """Print a table."""
    model, *contexts = sys.argv[1:]
    if os.environ.get("BENCH_MEMORY_ROW"):
        plan, peak = measure(model, int(contexts[0]), 2, False)
        parts = (plan.weights, plan.cache, plan.buffers, plan.program, plan.total, peak)
        print(*parts)
        return
    from gguf_runtime import Model

    print(
        "| model | context | weights | cache | buffers | program | planned | peak | peak / planned |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for word in contexts:
        n = Model.plan(model, "max").context if word == "max" else int(word)
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory", model, str(n)],
            env=os.environ | {"BENCH_MEMORY_ROW": "1"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        parts = [int(x) for x in done.stdout.split()]
        share = parts[-1] / parts[-2]
        cells = " | ".join(f"{x / 1e6:,.0f} MB" for x in parts)
        print(f"| {os.path.basename(model)} | {n:,} | {cells} | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
