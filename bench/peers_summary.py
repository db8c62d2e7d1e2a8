"""A record of `peers.py` as the short table of README.md: medians, most threads."""

from __future__ import annotations

import statistics
from typing import Any

import peers_table
import record as records
from peers_table import OWN

PEERS = ("llama.cpp", "ik_llama.cpp")
FIDELITY = {
    OWN: "int8, f16 cache",
    "llama.cpp": "llama.cpp, one batch",
    "ik_llama.cpp": "ik_llama.cpp, token by token",
}


def markdown(r: dict[str, Any]) -> str:
    """Machine, one table for all models, what has to be known to read it."""
    engines = [OWN, *(p for p in PEERS if p in r["engines"])]
    most = max(c["threads"] for c in r["cells"])
    lines = ["| | " + " | ".join(engines) + " |", "|---|" + "--:|" * len(engines)]
    for name, facts in r["models"].items():
        lines.append(f"| **{peers_table.title(name, facts)}** |" + " |" * len(engines))
        lines += [_line(words, cells) for words, cells in _rows(r, name, most, engines)]
    turns = r["settings"]["reps"]
    text = [
        records.system_line(r),
        "\n".join(lines),
        f"Tokens per second are medians of {turns} interleaved turns, {most} threads; peers ({'; '.join(peers_table.peers(r))})"
        " with the better setting of flash attention. KL is the divergence from exact arithmetic of the same file."
        " One thread, ranges, a 1B shape and how all of it was measured: [docs/performance.md](docs/performance.md).",
    ]
    if "ik_llama.cpp" in engines and "smollm2" in r["models"]:
        text.append(peers_table.WRONG)
    return "\n\n".join(text)


def _line(words: str, cells: list[str]) -> str:
    return f"| {words} | " + " | ".join(cells) + " |"


def _rows(
    r: dict[str, Any], name: str, threads: int, engines: list[str]
) -> list[tuple[str, list[str]]]:
    rows = []
    for c in sorted(r["cells"], key=lambda c: c["depth"]):
        if (c["model"], c["threads"]) != (name, threads):
            continue
        for what in sorted(c["engines"][OWN]["tps"], key=peers_table.phase):
            found = [peers_table.best(c, e, what) for e in engines]
            behind = f" behind {c['depth']:,} tokens" if c["depth"] else ""
            rows.append(
                (f"{what}{behind}, t/s", [f"{x['median']:,.0f}" if x else "" for x in found])
            )
    starts = {s["engine"]: s["wall_s"] for s in r["start"] if s["model"] == name}
    if starts:
        cells = [f"{statistics.median(starts[e]):.2f}" if e in starts else "" for e in engines]
        rows.append(("start to first token, s", cells))
    known = peers_table.divergences(r)
    kl = {e: x[1] for e in engines for x in known.get(name, []) if x[0].startswith(FIDELITY[e])}
    if kl:
        rows.append(("mean KL", [kl.get(e, "") for e in engines]))
    return rows
