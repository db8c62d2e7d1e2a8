"""The tiny models with reference logits: which there are, and where."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

COMMITTED = Path(__file__).parent / "data" / "archs"
GOLDEN = os.environ.get("GGUF_RUNTIME_GOLDEN")

HF = (
    *("llama", "llama-bias-tied", "llama-fused-qkv", "llama-linear", "llama3-ropefreqs"),
    *("llama-yarn", "llama-yarn-attnfactor", "llama-yarn-beta", "mistral"),
    *("qwen2", "qwen2-yarn", "qwen3", "gemma3"),
)
UNTOLD_WINDOW = ("mistral-window", "qwen2-window")  # nothing in the file tells of the window
QUANTIZED = ("quant-llama-q4_k_m", "quant-gemma3-q4_0", "quant-qwen3-q4_0", "quant-qwen3-q8_0")

TOLERANCE = 2e-4  # twenty times what a float64 pass is away from float32 transformers
WIDER = {"qwen2-yarn": 3e-4}


def find(name: str) -> Path | None:
    """Path of NAME.gguf or NAME.npz, committed or in the golden folder."""
    folders = [COMMITTED, *([Path(GOLDEN) / "archs"] if GOLDEN else [])]
    return next((f / name for f in folders if (f / name).exists()), None)


def path_of(name: str) -> Path:
    path = find(name)
    if path is None:
        pytest.skip(f"{name} is in GGUF_RUNTIME_GOLDEN only, which is not set")
    return path


def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(path_of(f"{name}.npz")) as data:
        return dict(data)
