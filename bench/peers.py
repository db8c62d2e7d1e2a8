"""Speed beside the C++ engines, interleaved in one run: `make bench-peers`, with PEERS=DIR from tools/peers.sh.

    PEERS=DIR .venv/bin/python bench/peers.py [--write] [--also-isa avx2] [--threads 1,2] [--depth 0,2048]

Every engine is one process that keeps its model and the first `--depth` tokens, and sleeps between turns. In a turn are
timed: the first prompt, `--decode` single tokens after it, the other prompts in place of the first. Turns go A B C
A B C ...; peers take part with flash attention and without, and the better median counts: a setting that is 5 % behind
in the round of warm-up is not tried again. All read the same random ids and keep keys and values as f16; peers leave
their logits in place, ours are copied. The table goes to stderr, one JSON line to stdout and to
bench/results/peers.jsonl; `--write` puts tables into README.md (short) and docs/performance.md, `--render` does so with the
last records of that file, measuring nothing. `--models 1b` compares files with random weights at a 1B model's shapes
(bench/shapes.py), by 2 threads on prompts of 256 tokens unless told otherwise. GGUF_RUNTIME_ISA=avx2 with peers that
were built for AVX2 (`tools/peers.sh DIR --isa avx2`) compares all engines as on a machine that has no more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import peers_summary  # noqa: E402
import peers_table  # noqa: E402
import record as records  # noqa: E402
import shapes  # noqa: E402
import workers  # noqa: E402

from gguf_runtime.hub.resolve import resolve  # noqa: E402

MODELS = "smollm2,gemma-3-270m"
RESULTS = records.RESULTS / "peers.jsonl"
README = ROOT / "README.md"
BEHIND = 0.95  # of the same engine's other setting: not tried again
IDS = range(3, 32_000)  # in the vocabulary of every model here


def main() -> int:
    a = arguments()
    found = records.every(a.out) if a.render else [measure(a)]
    # Of records that have the same place on the pages, the last one counts.
    last = {peers_table.block_of(record): record for record in found}
    for block, record in last.items():
        print(peers_table.markdown(record), file=sys.stderr)
        if not a.render:
            records.keep(record, a.out)
        if a.write or a.render:
            records.show(README, block, peers_summary.markdown(record))
            records.show(records.PERFORMANCE, block, peers_table.markdown(record))
    return 0


def arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(x) for x in text.split(",")]

    p = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    p.add_argument("--models", default=MODELS, help="names or paths, separated by commas")
    p.add_argument("--threads", type=numbers, help="default: 1,2")
    p.add_argument("--depth", type=numbers, help="default: 0,2048")
    p.add_argument("--prompt", type=numbers, help="default: 256,512")
    p.add_argument("--decode", type=int, default=64, help="tokens, one by one")
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--start-reps", type=int, default=10, help="programs from start to first token")
    p.add_argument(
        "--also-isa", default="", help="this engine a second time, with other kernels: avx2"
    )
    p.add_argument("--pause", type=float, default=0.2, help="seconds between turns")
    p.add_argument("--write", action="store_true", help="the table into README.md and docs")
    p.add_argument(
        "--render", action="store_true", help="the last record's table into them, no run"
    )
    p.add_argument("--out", type=Path, default=RESULTS)
    a = p.parse_args()
    large = shapes.is_shape(shapes.expanded(a.models)[0])
    a.threads = a.threads or ([2] if large else [1, 2])
    a.depth = a.depth or ([0] if large else [0, 2048])
    a.prompt = a.prompt or ([256] if large else [256, 512])
    return a


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Everything, cell by cell; a run that was cut short goes on where it stopped."""
    files = {
        name: shapes.made(name) if shapes.is_shape(name) else resolve(name)
        for name in shapes.expanded(a.models)
    }
    engines = contestants(a.also_isa)
    settings = {k: getattr(a, k) for k in ("prompt", "decode", "reps", "start_reps", "pause")}
    record = records.facts("quant", "gguf_runtime") | {"settings": settings}
    record["models"] = {n: file_facts(f) for n, f in files.items()}
    record["engines"], record["cells"], record["loads"], record["start"] = {}, [], [], []
    part = a.out.with_suffix(".part")
    if part.exists():
        before = json.loads(part.read_text(encoding="utf-8"))
        if all(before[k] == record[k] for k in ("commit", "dirty", "settings", "models")):
            record = before
    done = {(c["model"], c["threads"], c["depth"]) for c in record["cells"]}
    for name, file in files.items():
        for threads in a.threads:
            for depth in a.depth:
                if (name, threads, depth) not in done:
                    record["cells"].append(cell(a, engines, name, file, threads, depth, record))
                    save(part, record)
    for name, file in files.items():
        for e in whole_programs(engines):
            if not any((x["model"], x["engine"]) == (name, e.name) for x in record["start"]):
                record["start"].append(start(a, e, name, file))
                save(part, record)
    part.unlink(missing_ok=True)
    return record


def save(part: Path, record: dict[str, Any]) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps(record), encoding="utf-8")


def contestants(also_isa: str) -> list[tuple[workers.Engine, str]]:
    """Engines with their setting of flash attention; ours has no such setting."""
    peers = workers.peers()
    if not peers:
        print("note: no peers; PEERS names the folder that tools/peers.sh made", file=sys.stderr)
    found = [(workers.own(), "")]
    found += [(p, flash) for p in peers for flash in ("on", "off")]
    return found + ([(workers.own(also_isa), "")] if also_isa else [])


def whole_programs(engines: list[tuple[workers.Engine, str]]) -> list[workers.Engine]:
    return list({e.name: e for e, _ in engines}.values())


def cell(
    a: argparse.Namespace,
    engines: list[tuple[workers.Engine, str]],
    name: str,
    file: Path,
    threads: int,
    depth: int,
    record: dict[str, Any],
) -> dict[str, Any]:
    """All engines at one setting, in turns."""
    ids = random.Random(1).choices(IDS, k=depth + max(a.prompt) + a.decode)
    out: dict[str, Any] = {"model": name, "threads": threads, "depth": depth, "engines": {}}
    running: list[tuple[workers.Worker, dict[str, Any]]] = []
    for e, flash in engines:
        w = workers.Worker(e)
        facts = w.ask("facts")
        record["engines"][w.name] = {k: facts[k] for k in ("version", "build")}
        request = {"model": str(file), "threads": threads, "context": len(ids) + 8}
        loaded = {"import_s": facts["import_s"], **w.ask("load", flash=flash or "auto", **request)}
        record["loads"].append({"model": name, "threads": threads, "engine": w.name, **loaded})
        w.ask("fill", ids=ids[:depth])
        key = f"{w.name}, flash attention {flash}" if flash else w.name
        row: dict[str, Any] = {"name": w.name, "flash": flash, "tps": {}, "cpu_share": []}
        out["engines"][key] = row
        if "weights_bytes" in loaded:
            row["weights_bytes"] = loaded["weights_bytes"]
        running.append((w, row))
    own = running[0][0]
    out["token_bytes"] = own.ask("token_bytes", pos=depth + a.prompt[0] + a.decode // 2)["bytes"]
    limits = [own.ask("roofs")]  # before the rounds: its kernels may have to be compiled
    wanted: dict[int, list[str]] = {}
    for rep in range(-1, a.reps):
        print(
            f"{name}, {threads} threads, depth {depth}: round {rep + 1} of {a.reps}",
            file=sys.stderr,
        )
        warm: list[dict[str, float]] = []
        for k, (w, row) in enumerate(running):
            figures = wanted.get(k, figures_of(a))
            if not figures:
                continue
            prompts = [n for n in a.prompt if prefill(n) in figures]
            n_decode = a.decode if "decode" in figures else 0
            if n_decode and a.prompt[0] not in prompts:
                prompts.insert(0, a.prompt[0])
            time.sleep(a.pause)
            turn = w.ask("turn", ids=ids[depth:], depth=depth, prompts=prompts, n_decode=n_decode)
            tps = speeds(turn, a.decode)
            if rep < 0:
                warm.append(tps)
                continue
            for what, x in tps.items():
                row["tps"].setdefault(what, []).append(round(x, 2))
            row["cpu_share"].append(round(turn["cpu_s"] / turn["wall_s"] / threads, 3))
        if rep < 0:
            wanted = worth([row["name"] for _, row in running], warm)
        time.sleep(a.pause)
        limits.append(own.ask("roofs"))
    for w, _ in running:
        w.close()
    out["bandwidth"] = max(x["bandwidth"] for x in limits)
    out["dot_peak"] = max(x["dot_peak"] for x in limits)
    return out


def prefill(n: int) -> str:
    return f"prefill {n}"


def figures_of(a: argparse.Namespace) -> list[str]:
    return [*(prefill(n) for n in a.prompt), "decode"]


def speeds(turn: dict[str, Any], n_decode: int) -> dict[str, float]:
    """Tokens per second of every figure of a turn."""
    return {
        "decode" if what == "decode" else prefill(int(what)): (
            n_decode if what == "decode" else int(what)
        )
        / seconds
        for what, seconds in turn["seconds"].items()
    }


def worth(names: list[str], warm: list[dict[str, float]]) -> dict[int, list[str]]:
    """For each engine and setting the figures in which it is not far behind its own other setting."""
    top: dict[tuple[str, str], float] = {}
    for name, tps in zip(names, warm, strict=True):
        for what, x in tps.items():
            top[name, what] = max(x, top.get((name, what), 0.0))
    return {
        k: [what for what, x in tps.items() if x > BEHIND * top[name, what]]
        for k, (name, tps) in enumerate(zip(names, warm, strict=True))
    }


def start(a: argparse.Namespace, e: workers.Engine, name: str, file: Path) -> dict[str, Any]:
    """Programs from their start to one token, page cache and kernels warm."""
    print(f"{name}: {e.name} from start to first token", file=sys.stderr)
    spent = []
    for _ in range(a.start_reps + 1):
        time.sleep(a.pause)
        spent.append(workers.first_token(e, file))
    found = {
        "model": name,
        "engine": e.name,
        "wall_s": [round(s.wall_s, 3) for s in spent[1:]],
        "cpu_s": [round(s.cpu_s, 3) for s in spent[1:]],
        "peak_bytes": max(s.peak_bytes for s in spent[1:]),
    }
    if e.name.startswith("gguf-runtime"):  # which says how long it took to load
        found["load_s"] = [json.loads(s.said)["timings"]["load_s"] for s in spent[1:]]
    return found


def file_facts(file: Path) -> dict[str, Any]:
    with file.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    return {"file": file.name, "size_bytes": file.stat().st_size, "sha256": digest}


if __name__ == "__main__":
    sys.exit(main())
