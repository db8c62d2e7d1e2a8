"""What is saved by guessing ahead and by remembering prompts: `make bench-reuse`.

    .venv/bin/python bench/reuse.py [--models smollm2,gemma-3-270m] [--reps 7] [--write]

Speculation: the same answers with and without, each first in every other turn; to a prompt that asks
to repeat a text, and free text at temperature 0.8, whose seeds are the same in both. Prefix: a
prompt of 2,000 tokens that was never seen, twice; the time to the first token. Texts of both are
compared. Tables on stderr, one JSON line on stdout and in bench/results/reuse.jsonl; `--write` puts
them into docs/performance.md.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import record as records  # noqa: E402

from gguf_runtime import Model  # noqa: E402
from gguf_runtime.hub.resolve import resolve  # noqa: E402
from quant import cpu  # noqa: E402

RESULTS = records.RESULTS / "reuse.jsonl"
N_TOKENS = 200  # of an answer
N_PROMPT = 2000
TEXT = (
    "The harbour master kept a ledger in which every ship had a page. On the left he wrote what it"
    " carried: salt, timber, barrels of tar, and once a piano that nobody had asked for. On the right"
    " he wrote what the weather did while it lay at the quay. After forty years the ledger held more"
    " rain than cargo, and the town council asked him to stop. He bought a second ledger instead, gave"
    " it to his daughter, and told her to write down only the clear days."
)
WORDS = TEXT.replace(",", "").replace(".", "").replace(":", "").split()


def answers(m: Model, kind: str, turn: int, speculate: bool) -> Any:
    """One answer: a repeated text, or free text that depends on the turn."""
    if kind == "repeat":
        prompt = f"{TEXT}\n\nThe same text again, word for word:\n\n{' '.join(TEXT.split()[:6])}"
        options: dict[str, Any] = {"temperature": 0}
    else:
        prompt, options = "One day in autumn,", {"temperature": 0.8, "seed": turn + 1}
    return m.complete(prompt, raw=True, max_tokens=N_TOKENS, speculate=speculate, **options)


def speculation(m: Model, kind: str, reps: int) -> dict[str, Any]:
    """Tokens per second with and without guessing, in turns."""
    out: dict[str, Any] = {"with": [], "without": [], "drafted": 0, "accepted": 0, "same": True}
    for turn in range(-1, reps):
        texts = []
        order = (("without", False), ("with", True))
        for name, speculate in order if turn % 2 else order[::-1]:
            a = answers(m, kind, turn, speculate)
            texts.append(a.text)
            if turn >= 0:
                out[name].append(round(a.usage.generated / a.timings.decode_s, 2))
                out["drafted"] += a.usage.drafted
                out["accepted"] += a.usage.accepted
        out["same"] &= texts[0] == texts[1]
    return out


def prefix(m: Model, reps: int) -> dict[str, Any]:
    """Seconds to the first token of new prompts, and of the same ones again."""
    out: dict[str, Any] = {"first_s": [], "again_s": [], "cached": 0, "same": True}
    for turn in range(reps):
        words = random.Random(turn)
        prompt = f"Turn {turn}."
        while len(m.tokenize(prompt)) < N_PROMPT:
            prompt += " " + " ".join(words.choices(WORDS, k=50))
        first, again = (m.complete(prompt, raw=True, max_tokens=8, temperature=0) for _ in range(2))
        out["first_s"].append(round(first.timings.ttft_s, 5))
        out["again_s"].append(round(again.timings.ttft_s, 5))
        out["cached"], out["prompt"] = again.usage.cached, again.usage.prompt
        out["same"] &= first.text == again.text
    return out


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Both, for every model."""
    record = records.facts("quant", "gguf_runtime") | {"threads": a.threads, "models": {}}
    for name in a.models.split(","):
        file = resolve(name)
        with Model(file, threads=a.threads, context=4096) as m:
            record["models"][name] = {
                "file": file.name,
                "repeat": speculation(m, "repeat", a.reps),
                "free": speculation(m, "free", a.reps),
                "prefix": prefix(m, a.reps),
            }
    return record


def tables(r: dict[str, Any]) -> str:
    """Speculation, then prompts that were read before."""
    lines = [
        records.system_line(r),
        "",
        "| model | answer | without, t/s | guessing, t/s | ratio | accepted of drafted | same text |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for m in r["models"].values():
        for kind in ("repeat", "free"):
            s = m[kind]
            ratio = statistics.median(x / y for x, y in zip(s["with"], s["without"], strict=True))
            cells = [m["file"], kind, shown(s["without"], 0), shown(s["with"], 0), f"{ratio:.2f}"]
            cells += [f"{s['accepted']:,} of {s['drafted']:,}", yes(s["same"])]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| model | tokens | first, s to first token | again | of the first | from the cache | same text |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for m in r["models"].values():
        p = m["prefix"]
        ratio = statistics.median(x / y for x, y in zip(p["again_s"], p["first_s"], strict=True))
        cells = [m["file"], f"{p['prompt']:,}", shown(p["first_s"], 3), shown(p["again_s"], 4)]
        cells += [f"{100 * ratio:.1f} %", f"{p['cached']:,}", yes(p["same"])]
        lines.append("| " + " | ".join(cells) + " |")
    turns = len(next(iter(r["models"].values()))["repeat"]["with"])
    lines += [
        "",
        f"Medians (range) of {turns} turns, {r['threads']} threads, {N_TOKENS} tokens an answer.",
    ]
    return "\n".join(lines)


def yes(x: bool) -> str:
    return "yes" if x else "**no**"


def shown(values: list[float], digits: int) -> str:
    low, mid, high = min(values), statistics.median(values), max(values)
    return f"{mid:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def main() -> int:
    p = records.arguments(__doc__ or "", 7, RESULTS)
    p.add_argument("--threads", type=int, default=cpu.cores().threads)
    a = p.parse_args()
    r = measure(a)
    records.publish(a, "reuse", r, tables(r))
    return 0


if __name__ == "__main__":
    sys.exit(main())
