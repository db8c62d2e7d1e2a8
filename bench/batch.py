"""Many prompts at once, beside one after another and beside llama.cpp: `make bench-batch`, with PEERS=DIR from tools/peers.sh.

    PEERS=DIR .venv/bin/python bench/batch.py [--models smollm2] [--reps 5] [--parallel 8,16,32,64] [--write]

64 prompts of 32 tokens, 64 tokens of answer each, temperature 0.8; nothing is remembered from turn to turn, and texts
are compared. Then 16 prompts that share their first 512 tokens: how many tokens are read, and what it takes. The
peer decodes 8 and 16 sequences at once (tools/peer_bench.py --parallel: random ids, prompts not counted, nothing sampled),
in a process of its own in every turn. Turns go A B C A B C. The table goes to stderr, one JSON line to stdout and to
bench/results/batch.jsonl; `--write` puts it into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import record as records  # noqa: E402
import reuse  # noqa: E402
import workers  # noqa: E402

from gguf_runtime import Model  # noqa: E402
from gguf_runtime.hub.resolve import resolve  # noqa: E402
from quant import cpu  # noqa: E402

RESULTS = records.RESULTS / "batch.jsonl"
N_PROMPTS, N_IN, N_OUT = 64, 32, 64
N_SHARED, N_ALIKE = 512, 16
PEER_PARALLEL = (8, 16)
OPTIONS: dict[str, Any] = {"raw": True, "max_tokens": N_OUT}


def main() -> int:
    p = records.arguments(__doc__ or "", 5, RESULTS)
    p.set_defaults(models="smollm2")
    p.add_argument("--threads", type=int, default=cpu.cores().threads)
    p.add_argument("--parallel", default="8,16,32,64", help="sequences at once")
    a = p.parse_args()
    r = measure(a)
    records.publish(a, "batch", r, table(r))
    return 0


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """All turns of every model."""
    facts = records.facts("quant", "gguf_runtime")
    record = facts | {"threads": a.threads, "reps": a.reps, "models": {}}
    widths = [int(x) for x in a.parallel.split(",")]
    for name in a.models.split(","):
        file = resolve(name)
        with Model(file, threads=a.threads, context=2048) as m:
            found: dict[str, Any] = {"file": file.name, "same": True, "rows": {}, "shared": []}
            found["default"] = m.batch([]).parallel
            for k in range(a.reps):
                turn(m, file, found, widths, k)
            record["models"][name] = found
    return record


def turn(m: Model, file: Path, found: dict[str, Any], widths: list[int], k: int) -> None:
    """One after another, several at once, the peer, prompts that begin alike."""
    rows = found["rows"]
    items = prompts(m, k)
    m.complete("Some words to wake the threads.", raw=True, max_tokens=8)

    def row(name: str, tokens_per_s: float) -> None:
        rows.setdefault(name, []).append(round(tokens_per_s, 1))

    one, texts = timed(m, items, 0)
    row("one after another", one)
    for width in widths:
        speed, again = timed(m, items, width)
        row(f"{width} at once", speed)
        found["same"] &= texts == again
    for name, speed in peer(file).items():
        row(name, speed)
    found["shared"].append(shared(m, k))


def timed(m: Model, items: list[dict[str, Any]], width: int) -> tuple[float, list[str]]:
    """Tokens answered per second, the prompts' time included, and the texts; width 0: one by one."""
    m.backend.forget()
    begin = time.perf_counter()
    if width:
        outs = list(m.batch(items, parallel=width, **OPTIONS))
    else:
        outs = [m.complete(**item, **OPTIONS) for item in items]
    seconds = time.perf_counter() - begin
    return sum(o.usage.generated for o in outs) / seconds, [o.text for o in outs]


def shared(m: Model, k: int) -> dict[str, Any]:
    """Prompts that begin with the same tokens: how many there are, were read, and seconds."""
    words = random.Random(1000 + k)
    start = text(m, words, N_SHARED)
    items = [start + text(m, words, N_IN) for _ in range(N_ALIKE)]
    m.backend.forget()
    begin = time.perf_counter()
    outs = list(m.batch(items, max_tokens=1, raw=True))
    seconds = time.perf_counter() - begin
    tokens = sum(o.usage.prompt for o in outs)
    return {
        "prompts": len(items),
        "tokens": tokens,
        "read": tokens - sum(o.usage.cached for o in outs),
        "seconds": round(seconds, 4),
    }


def prompts(m: Model, k: int) -> list[dict[str, Any]]:
    """Texts of 32 tokens, with seeds."""
    words = random.Random(k)
    return [{"prompt": text(m, words, N_IN), "seed": i} for i in range(N_PROMPTS)]


def text(m: Model, words: random.Random, n_tokens: int) -> str:
    """Words that are so many tokens."""
    while True:
        ids = m.tokenize(" ".join(words.choices(reuse.WORDS, k=n_tokens)))[:n_tokens]
        found = m.detokenize(ids)
        if len(m.tokenize(found)) == n_tokens:
            return found


def peer(file: Path) -> dict[str, float]:
    """Tokens per second of llama.cpp with several sequences; nothing without PEERS."""
    engine = next((e for e in workers.peers() if e.name == "llama.cpp"), None)
    if engine is None:
        return {}
    tool = str(workers.tools_dir() / "peer_bench.py")
    widths = ",".join(map(str, PEER_PARALLEL))
    size = ["--prompt", str(N_IN), "--gen", str(N_OUT), "--reps", "1", "--parallel", widths]
    threads = ["--threads", str(cpu.cores().threads)]
    done = subprocess.run(
        [engine.command[0], tool, str(file), *threads, *size],
        env=engine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)["results"]
    return {f"llama.cpp, {r['parallel']} at once": r["parallel_median"] for r in results}


def table(r: dict[str, Any]) -> str:
    """Rows of speed with their ratio to one after another, then the shared beginning."""
    lines = [records.system_line(r)]
    for m in r["models"].values():
        base = m["rows"]["one after another"]
        lines += ["", f"| {m['file']} | tokens/s | of one after another |", "|---|--:|--:|"]
        for name, speeds in m["rows"].items():
            ratio = statistics.median(x / y for x, y in zip(speeds, base, strict=True))
            shown = f"{name} (the default)" if name == f"{m['default']} at once" else name
            lines.append(f"| {shown} | {reuse.shown(speeds, 0)} | {ratio:.2f} |")
        s = m["shared"][-1]
        seconds = [x["seconds"] for x in m["shared"]]
        lines += [
            "",
            f"Same texts in all: {reuse.yes(m['same'])}. {s['prompts']} prompts that begin with the"
            f" same {N_SHARED} tokens, {s['tokens']:,} tokens in all: {s['read']:,} were read, in"
            f" {reuse.shown(seconds, 2)} s.",
        ]
    lines += [
        "",
        f"{N_PROMPTS} prompts of {N_IN} tokens, {N_OUT} tokens of answer; answered tokens over the"
        f" time of everything, reading and choosing included; for llama.cpp over the time of"
        f" decoding alone, nothing chosen. Medians (range) of {r['reps']} turns, {r['threads']} threads.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
