"""Logits of a list of token ids: `logits.py MODEL TOKENS.json OUT.npy`, for measures of fidelity.

MODEL is a path or a catalog name, TOKENS a JSON list of ids; nothing is added to them. OUT becomes
float32 (tokens, n_vocab). With GGUF_RUNTIME_EXACT=1 the logits are those of float64 arithmetic.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from gguf_runtime import GGUFRuntimeError, Model


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("tokens", type=Path, help="a JSON list of token ids")
    parser.add_argument("out", type=Path, help="the npy file to write")
    parser.add_argument("--precision", default="int8", choices=["int8", "int16"])
    parser.add_argument("--cache-type", default="f16", choices=["f16", "f32", "q8_0"])
    parser.add_argument("--threads", type=int, help="default: the physical performance cores")
    parser.add_argument("--chunk", type=int, help="tokens per step; no bit depends on it")
    a = parser.parse_args()
    ids = json.loads(a.tokens.read_text())
    try:
        with Model(
            a.model,
            precision=a.precision,
            cache_type=a.cache_type,
            threads=a.threads,
            context=max(1, len(ids)),
        ) as model:
            logits = model.logits(ids, chunk=a.chunk)
            np.save(a.out, logits)
            print(f"{len(ids)} tokens, {model.isa}, {model.threads} threads", file=sys.stderr)
    except GGUFRuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
