"""Kernels of the matmul as a share of what this machine can do: `make bench-kernels`.

    .venv/bin/python bench/kernels.py [--types Q4_K,Q6_K] [--threads 2] [--reps 5] [--size-mb 1024]

Limits and kernels are measured in turns, so that both see the same machine: bytes per second of a
plain read for one column (GEMV, decode), multiply-adds in registers for 512 columns (GEMM, prefill):
the instruction set's own dot product of codes of few bits, that of signed 8-bit codes, or fma. a16
multiplies two planes, so its share of the peak is at most a half. Tables go to stderr, one JSON line
to stdout and to bench/results/kernels.jsonl; `--write` puts tables and picture into the docs,
`--render` does so with the last record of that file, measuring nothing.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import kernels_table  # noqa: E402
import record as records  # noqa: E402

from quant import activations, cpu, gemm, gemm_float, gemm_panel, gemm_stream, jit  # noqa: E402
from quant import packing_kernels as packing  # noqa: E402
from quant.calls import Sizes, act_bytes, address, aligned, quantize_row  # noqa: E402
from quant.linear import strips_per_task  # noqa: E402
from quant.memory import allocate  # noqa: E402
from quant.pool import Pool, Row  # noqa: E402
from quant.roofs import PEAKS, Roofs, reading_bytes  # noqa: E402
from quant.types import TYPES, Type, get  # noqa: E402

RESULTS = records.RESULTS / "kernels.jsonl"
K, COLUMNS, ROWS = 2048, 512, 2048  # of the product with many columns
PACK_BYTES = 64 << 20
PASSES = 3  # of a turn, the best counts, as it does for the limits

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
            one = gemm_stream.stream.spec(t.name, fmt, "one")
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
    limits: dict[str, Timed] = {"read": roofs.bandwidth}
    limits |= {kind: functools.partial(roofs.peak, kind) for kind in PEAKS}
    record: dict[str, Any] = records.facts("quant") | {
        "threads": a.threads,
        "size_bytes": a.size_mb << 20,
        "shape": {"k": K, "rows": ROWS, "columns": COLUMNS},
        **{name: [] for name in limits},
    }
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Kernels as a share of this machine's limits.")
    parser.add_argument("--types", default=",".join(TYPES), help="names, comma separated")
    parser.add_argument("--threads", type=int, default=cpu.cores().threads)
    parser.add_argument("--reps", type=int, default=5, help="rounds of everything")
    parser.add_argument("--size-mb", type=int, default=reading_bytes() >> 20)
    parser.add_argument("--write", action="store_true", help="tables and picture into docs/")
    parser.add_argument("--render", action="store_true", help="the last record's, no run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    a = parser.parse_args()
    record = records.last(a.out) if a.render else measure(a)
    print(kernels_table.markdown(record), file=sys.stderr)
    if not a.render:
        records.keep(record, a.out)
    if a.write or a.render:
        kernels_table.write(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
