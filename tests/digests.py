"""Digests of logits, the same on every machine: `python -m tests.digests [CASE...]` prints them.

`--write` computes all of them and stores them in tests/data/digests.json: only after a change of the
arithmetic contract, which is a change of what every user sees. A case is MODEL/PRECISION/CACHE, its
tokens come from `random_ids`; `/long` reads more than two spans of 512 positions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.engine import digest, feed, random_ids, stepper  # noqa: E402 - the path comes first

STORED = ROOT / "tests" / "data" / "digests.json"
ARCHS = ROOT / "tests" / "data" / "archs"

TINY = (
    *("gemma3/int8/f16", "gemma3/int8/f32", "gemma3/int8/f16/long"),
    *("qwen2/int8/f16", "qwen3/int8/f16", "llama-bias-tied/int8/f16", "llama-fused-qkv/int8/f32"),
    *("llama-yarn-beta/int8/f16", "llama3-ropefreqs/int8/f16"),
    *("quant-llama-q4_k_m/int8/f16", "quant-llama-q4_k_m/int16/f32"),
    *("quant-llama-q4_k_m/int8/q8_0", "quant-llama-q4_k_m/int8/f16/long"),
    *("quant-gemma3-q4_0/int8/f16", "quant-gemma3-q4_0/int16/f16"),
    *("quant-qwen3-q4_0/int8/f16", "quant-qwen3-q4_0/int16/f32"),
    *("quant-qwen3-q8_0/int8/q8_0", "quant-qwen3-q8_0/int16/f16"),
)
REAL = (
    *("smollm2/int8/f16", "smollm2/int16/f16"),
    *("gemma-3-270m/int8/f16", "gemma-3-270m/int16/f16"),
)


def compute(case: str, path: Path | None = None, threads: int = 2) -> str:
    """The digest of a case, on this CPU or on what GGUF_RUNTIME_ISA says."""
    name, precision, cache_type, *long = case.split("/")
    n = 1100 if long else 24 if case in REAL else 100
    file = path or ARCHS / f"{name}.gguf"
    with stepper(file, precision=precision, cache_type=cache_type, threads=threads) as model:
        ids = random_ids(model.loaded.arch.graph.n_vocab, n, seed=7)
        return digest(feed(model, ids, 64, {511, 512, 1024, n - 1} if long else None))


def stored() -> dict[str, str]:
    digests: dict[str, str] = json.loads(STORED.read_text())
    return digests


def main(*words: str) -> None:
    if words != ("--write",):
        for case in words or TINY:
            print(case, compute(case), flush=True)
        return
    from gguf_runtime.hub.catalog import entries

    digests = {case: compute(case) for case in TINY}
    digests |= {case: compute(case, entries()[case.split("/")[0]].path) for case in REAL}
    STORED.write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
