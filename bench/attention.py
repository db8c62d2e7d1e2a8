"""Attention alone, on items as the engine makes them: decode at depth, prefill of 256 tokens.

    .venv/bin/python bench/attention.py [--threads 2] [--reps 7] [--cache f16] [--only smollm2]

The layers of a model are walked one after the other, each over its own part of the pages, so that
decode finds its cache in memory and not in a core's cache. GFMA/s counts what queries see, not what
tiles touch; GB/s counts keys and values once per step. One line per case, on stdout.

The share is of attention's own limit, the later of two times: its bytes at the bandwidth of reading,
and its operations at the rate of fma. Both rates are measured before and after the case; the better
counts. Operations are two multiply-adds per query, position and dimension, what exp takes per query
and position, and one conversion of each stored key and value. Above 100 %: the cache stood nearer
than memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gguf_runtime.cache.pages import POSITIONS, Layout  # noqa: E402
from gguf_runtime.graph.schedule import Heads, Run, schedule  # noqa: E402
from gguf_runtime.kernels import attention  # noqa: E402
from gguf_runtime.kernels.slots import row  # noqa: E402
from quant import cpu, jit  # noqa: E402
from quant.memory import allocate  # noqa: E402
from quant.pool import Pool, Row  # noqa: E402
from quant.roofs import Roofs  # noqa: E402


class Shape(NamedTuple):
    """Attention of a model: its layers share these numbers."""

    layers: int
    n_head: int
    n_head_kv: int
    dim: int
    window: int


SHAPES = {
    "smollm2": Shape(30, 9, 3, 64, 0),
    "gemma": Shape(15, 4, 1, 256, 512),
    "qwen3": Shape(28, 16, 8, 128, 0),
}
EXP = 19  # operations of a probability: the difference to the largest score, and e^x of it
CASES = ((1, 256), (1, 2048), (1, 8192), (256, 0), (256, 2048))  # tokens, positions before them


def seen(shape: Shape, tokens: int, depth: int) -> int:
    """Pairs of query and position of one head."""
    ends = depth + 1 + np.arange(tokens)
    return int(np.minimum(ends, shape.window).sum() if shape.window else ends.sum())


class Case:
    """One step of a model's attention, ready to run."""

    def __init__(self, pool: Pool, shape: Shape, cache: str, tokens: int, depth: int) -> None:
        layout = Layout(cache, shape.dim, shape.dim, shape.n_head_kv)
        n_pages = -(-(depth + tokens) // POSITIONS)
        page = shape.layers * layout.layer_bytes
        rng = np.random.default_rng(0)
        self.pages = allocate(n_pages * page, huge=True)
        # As f16 or f32: numbers of ordinary size, of either sign.
        block = rng.normal(0, 0.5, 1 << 20).astype(np.float32 if cache == "f32" else np.float16)
        raw = block.view(np.uint8)
        for at in range(0, len(self.pages), len(raw)):
            self.pages[at : at + len(raw)] = raw[: len(self.pages) - at]
        table = self.pages.ctypes.data + page * np.arange(n_pages, dtype=np.int64)
        heads = Heads(shape.n_head, shape.n_head_kv, shape.dim, shape.window)
        work = schedule(heads, [Run(0, tokens, depth)], pool.threads)
        q = (rng.normal(0, 1, (tokens, shape.n_head, shape.dim)) * 0.125).astype(np.float32)
        out = np.zeros_like(q)
        partial = np.zeros(
            max(work.n_slots, 1) * attention.partial_floats(shape.n_head, shape.dim), np.float32
        )
        step = -(-attention.scratch_bytes(shape.dim) // 4096) * 4096
        scratch = allocate(step * pool.threads)
        tables = np.array([table.ctypes.data], np.int64)
        pos = depth + np.arange(tokens, dtype=np.int32)
        seq = np.zeros(tokens, np.int32)
        stride = 4 * shape.n_head * shape.dim
        both: dict[str, Any] = {
            "out": out,
            "out_stride": stride,
            "value_dim": shape.dim,
            "partial": partial,
            "n_head": shape.n_head,
            "scratch": scratch,
            "scratch_step": step,
        }
        specs = attention.attention.spec(cache), attention.merge.spec()
        kernels = jit.load(specs)
        rows, self.keep = [], [out, partial, scratch, table, tables, pos, seq, q, work]
        for layer in range(shape.layers):
            args = row(
                attention.ARGS, q=q, q_stride=stride, key_dim=shape.dim, pos=pos, seq=seq,
                tables=tables, layer_offset=layer * layout.layer_bytes, window=shape.window,
                head_bytes=layout.head_bytes, key_bytes=layout.key_bytes, items=work.items, **both,
            )  # fmt: skip
            join = row(attention.MERGE_ARGS, rows=work.merges, **both)
            self.keep += [args, join]
            rows.append(Row(kernels[specs[0]], args.ctypes.data, len(work.items)))
            if len(work.merges):
                count = len(work.merges) * shape.n_head
                rows.append(Row(kernels[specs[1]], join.ctypes.data, count))
        self.tape = pool.tape(rows)
        pairs = shape.layers * shape.n_head * seen(shape, tokens, depth)
        self.multiply_adds = pairs * 2 * shape.dim
        self.operations = self.multiply_adds + pairs * EXP
        visible = min(depth + tokens, shape.window + tokens - 1 if shape.window else 1 << 60)
        self.bytes = page // POSITIONS * visible
        self.operations += 2 * shape.layers * shape.n_head_kv * shape.dim * visible
        self.out = out

    def limit(self, roofs: Roofs) -> float:
        """Seconds below which it cannot be."""
        return max(self.bytes / roofs.bandwidth(), self.operations / roofs.peak("fma"))

    def seconds(self) -> float:
        """One step."""
        start = time.perf_counter()
        self.tape.run()
        return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description="Attention alone.")
    parser.add_argument("--threads", type=int, default=cpu.cores().threads)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--cache", default="f16", choices=("f16", "f32", "q8_0"))
    parser.add_argument("--only", default=",".join(SHAPES), help="names, comma separated")
    a = parser.parse_args()
    with Pool(a.threads) as pool:
        roofs = Roofs(pool)
        for name in a.only.split(","):
            for tokens, depth in CASES:
                case = Case(pool, SHAPES[name], a.cache, tokens, depth)
                case.seconds()
                before = case.limit(roofs)
                times = [case.seconds() for _ in range(a.reps)]
                best, mid = min(times), statistics.median(times)
                share = min(before, case.limit(roofs)) / best
                print(
                    f"{name:8} {cpu.isa()} {a.cache} {a.threads} threads, {tokens:3} tokens at "
                    f"{depth:4}: {mid * 1e3:7.2f} ms (best {best * 1e3:7.2f}), best "
                    f"{case.multiply_adds / best / 1e9:6.1f} GFMA/s, {case.bytes / best / 1e9:5.1f} GB/s, "
                    f"{share:4.0%} of its limit"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
