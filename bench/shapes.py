"""Files with random weights at a real model's shapes, made when a benchmark asks for them.

`1b` stands for a 1B model (Llama 3.2's shapes) as Q4_K_M, Q4_0 and Q8_0: 2.7 GB in all, made by
`make_bench_model.py` of GGUF_RUNTIME_TOOLS in the folder that GGUF_RUNTIME_BENCH_MODELS names, else
in the cache. Text that comes out of them means nothing; speed and memory are those of a real file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import workers

SHAPE, TYPES = "1b", ("Q4_K_M", "Q4_0", "Q8_0")


def expanded(names: str) -> list[str]:
    """Names by commas, `1b` as its files: 1b:Q4_K_M …"""
    out: list[str] = []
    for name in names.split(","):
        out += [f"{SHAPE}:{t}" for t in TYPES] if name == SHAPE else [name]
    return out


def is_shape(name: str) -> bool:
    """Whether it is a file to be made, not a model to be found."""
    return name.startswith(f"{SHAPE}:")


def made(name: str) -> Path:
    """The file of `1b:Q4_0`; made where there is none."""
    _, _, kind = name.partition(":")
    path = folder() / f"{kind}.gguf"
    if not path.exists():
        maker = workers.tools_dir() / "make_bench_model.py"
        if not maker.exists():
            raise SystemExit(
                f"error: {path} does not exist, and there is no {maker} to make it\n"
                "       name the folder with that script: export GGUF_RUNTIME_TOOLS=…"
            )
        print(f"making {path}, about a gigabyte", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        subprocess.run([sys.executable, str(maker), SHAPE, kind, str(part)], check=True)
        part.rename(path)
    return path


def folder() -> Path:
    """Where such files are kept."""
    named = os.environ.get("GGUF_RUNTIME_BENCH_MODELS")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gguf-runtime-bench" / SHAPE
