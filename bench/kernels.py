"""Kernels of the matmul as a share of what this machine can do: `make bench-kernels`.

    .venv/bin/python bench/kernels.py [--types Q4_K,Q6_K] [--threads 2] [--reps 5] [--size-mb 1024]

Limits and kernels are measured in turns, so that both see the same machine: bytes per second of a
plain read for one column (decode), multiply-adds of the instruction set's own dot product or fma in
registers for 512 columns (prefill). a16 multiplies two planes, so its share is at most a half. The
table goes to stderr, one JSON line to stdout and to bench/results/kernels.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from quant import activations, cpu, gemm, gemm_float, gemm_panel, gemm_stream, jit  # noqa: E402
from quant import packing_kernels as packing  # noqa: E402
from quant.calls import Sizes, act_bytes, address, aligned, quantize_row  # noqa: E402
from quant.linear import strips_per_task  # noqa: E402
from quant.memory import allocate  # noqa: E402
from quant.pool import Pool, Row  # noqa: E402
from quant.roofs import Roofs  # noqa: E402
from quant.types import TYPES, Type, get  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "kernels.jsonl"
K, COLUMNS, ROWS = 2048, 512, 2048  # of the product with many columns
PACK_BYTES = 64 << 20
PASSES = 3  # of a turn, the best counts, as it does for the limits
SHARE = 8  # of the memory that is to be had, at most one part is read

Timed = Callable[[], float]  # one run: bytes or multiply-adds per second


class Bench:
    """One set of threads, the memory that they read, and what keeps arguments alive."""

    def __init__(self, threads: int, size: int) -> None:
        self.pool, self.threads, self.size = Pool(threads), threads, size
        self.weights = allocate(size, huge=True)
        # Bytes 0x2c to 0x3b: as scales, codes or values all of them are ordinary numbers.
        block = np.random.default_rng(0).integers(0x2C, 0x3C, 1 << 20, dtype=np.uint8)
        for at in range(0, size, len(block)):
            self.weights[at : at + len(block)] = block[: size - at]
        self.packed = allocate(PACK_BYTES, huge=True)
        self.keep: list[Any] = []

    def product(self, t: Type, fmt: str, spec: jit.Spec, n: int, rows: int) -> Timed:
        """Rows x K times n columns: bytes read per second for one column, else multiply-adds."""
        tile = strips_per_task(rows // 16, self.threads)
        sizes = Sizes(t, n, K, rows, tile)
        out = np.zeros((n, rows), np.float32)
        scratch = aligned(self.threads * sizes.scratch_bytes)
        acts = self.activations(t, fmt, n)
        places = address(self.weights), address(acts), address(out)
        args = sizes.row(*places, out.strides[0], address(scratch))
        self.keep += [out, scratch, acts, args]
        work = sizes.n_strips * sizes.strip_bytes if n == 1 else rows * K * n
        return self.timed(spec, args, sizes.tasks, work)

    def activations(self, t: Type, fmt: str, n: int) -> Any:
        x = np.random.default_rng(n).standard_normal((n + gemm.SLACK, K)).astype(np.float32)
        if t.kind == "float":
            return x
        blocks = aligned(act_bytes(n, K, fmt))
        args = quantize_row(x[:n], blocks)
        spec = activations.quantize.spec(fmt)
        self.pool.tape([Row(jit.load([spec])[spec], address(args), n)]).run()
        return blocks

    def pack(self, t: Type) -> Timed:
        strips = PACK_BYTES // (16 * t.row_bytes(K))
        places = address(self.weights), t.row_bytes(K), address(self.packed), K // t.values
        args = np.array(places, np.int64)
        self.keep.append(args)
        work = strips * 16 * t.row_bytes(K)
        return self.timed(packing.pack_strip.spec(t.name), args, strips, work)

    def timed(self, spec: jit.Spec, args: Any, tasks: int, work: int) -> Timed:
        tape = self.pool.tape([Row(jit.load([spec])[spec], address(args), tasks)])

        def run() -> float:
            times = []
            for _ in range(PASSES):
                start = time.perf_counter()
                tape.run()
                times.append(time.perf_counter() - start)
            return work / min(times)

        return run


def kernels_of(bench: Bench, t: Type) -> dict[str, Timed]:
    """What is measured for a type, by `format phase`."""
    rows = bench.size // (16 * t.row_bytes(K)) * 16
    found = {"pack": bench.pack(t)}
    for fmt in ("f32",) if t.kind == "float" else ("a8", "a16"):
        if t.kind == "float":
            one, many = (gemm_float.floats.spec(t.name, shape) for shape in ("one", "many"))
        else:
            one = gemm_stream.stream.spec(t.name, fmt, 1)
            many = gemm_panel.panel.spec(t.name, fmt)
        found[f"{fmt} decode"] = bench.product(t, fmt, one, 1, rows)
        found[f"{fmt} prefill"] = bench.product(t, fmt, many, COLUMNS, ROWS)
    return found


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """All repetitions of limits and kernels, in units per second."""
    types = [get(name) for name in a.types.split(",")]
    bench = Bench(a.threads, a.size_mb << 20)
    roofs = Roofs(bench.pool, bench.size)
    runs = {t.name: kernels_of(bench, t) for t in types}
    limits = {"read": roofs.bandwidth, "dot": roofs.dot_peak, "fma": roofs.fma_peak}
    record: dict[str, Any] = facts(a) | {name: [] for name in limits}
    record["types"] = {name: {what: [] for what in found} for name, found in runs.items()}
    for found in runs.values():
        for run in found.values():
            run()  # warm-up
    for _ in range(a.reps):
        for name, limit in limits.items():
            record[name].append(limit())
        for name, found in runs.items():
            for what, run in found.items():
                record["types"][name][what].append(run())
    bench.pool.close()
    return record


def facts(a: argparse.Namespace) -> dict[str, Any]:
    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--", "quant")),
        "cpu": cpu_name(),
        "isa": cpu.isa(),
        "threads": a.threads,
        "size_bytes": a.size_mb << 20,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        "real_time": hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) != 0,
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(r: dict[str, Any]) -> str:
    """Medians with their range, and the median share of the limit of the same round."""
    limits = " · ".join(
        f"{what} {shown(r[name])}"
        for name, what in (("read", "read GB/s"), ("dot", "dot GMAC/s"), ("fma", "fma GMAC/s"))
    )
    lines = [
        f"{r['cpu']}, {r['isa']}, {r['threads']} threads, commit {r['commit']}"
        f"{' and changes' if r['dirty'] else ''}, load {r['load_average']:.1f}"
        f"{', real-time priority' if r['real_time'] else ''}",
        f"limits: {limits}",
        "",
        "| type | activations | 1 column, GB/s | of read | 512 columns, GMAC/s | of peak | pack, GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, kinds in r["types"].items():
        for fmt in dict.fromkeys(what.split()[0] for what in kinds if " " in what):
            decode, prefill = kinds[f"{fmt} decode"], kinds[f"{fmt} prefill"]
            peak = r["fma" if fmt == "f32" else "dot"]
            lines.append(
                f"| {name} | {fmt} | {shown(decode)} | {share(decode, r['read'])} "
                f"| {shown(prefill)} | {share(prefill, peak)} | {shown(kinds['pack'])} |"
            )
    return "\n".join(lines)


def shown(values: list[float]) -> str:
    low, mid, high = (
        f"{x / 1e9:.3g}" for x in (min(values), statistics.median(values), max(values))
    )
    return f"{mid} ({low}-{high})"


def share(values: list[float], limits: list[float]) -> str:
    return f"{statistics.median(x / y for x, y in zip(values, limits, strict=True)):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Kernels as a share of this machine's limits.")
    parser.add_argument("--types", default=",".join(TYPES), help="names, comma separated")
    parser.add_argument("--threads", type=int, default=cpu.cores().threads)
    parser.add_argument("--reps", type=int, default=5, help="rounds of everything")
    fits = cpu.memory().available_bytes // SHARE >> 20
    parser.add_argument("--size-mb", type=int, default=max(64, min(1024, fits)))
    parser.add_argument("--out", type=Path, default=RESULTS)
    a = parser.parse_args()
    record = measure(a)
    print(table(record), file=sys.stderr)
    line = json.dumps(record)
    a.out.parent.mkdir(parents=True, exist_ok=True)
    with a.out.open("a", encoding="utf-8") as f:
        f.write(line + "\n")
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
