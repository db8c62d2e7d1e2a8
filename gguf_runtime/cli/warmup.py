"""`warmup`: compile kernels now, so that the first answer does not wait for them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli.load import check_isa, load
from gguf_runtime.cli.terminal import Terminal, current

SMALL_CONTEXT = "256"  # kernels do not depend on it, memory does


def warmup(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="only what this model needs (default: every kernel)"),
    ] = None,
    cache_type: o.CacheTypeOption = "f16",
    precision: o.PrecisionOption = "int8",
    pack_cache: o.PackCache = False,
) -> None:
    """Compile the kernels of a model, or all of them, and keep them in the cache folder.

    Nothing is compiled twice: a second call returns at once. With --pack-cache the model's packed
    weights are written too.
    """
    terminal = current()
    begin = time.monotonic()
    if model is None:
        _all(terminal)
    else:
        kinds: dict[str, Any] = {
            "cache_type": cache_type,
            "precision": precision,
            "pack_cache": pack_cache,
        }
        with load(terminal, model, context=SMALL_CONTEXT, **kinds) as m:
            m.complete("a", raw=True, max_tokens=1, temperature=0)
    terminal.clear()
    terminal.say(f"kernels are ready ({time.monotonic() - begin:.1f} s)")


def _all(terminal: Terminal) -> None:
    from gguf_runtime.cli.kernels import variants
    from quant import jit

    check_isa()

    def compiling(done: int, total: int, name: str) -> None:
        terminal.progress("compiling kernels", done, total)

    jit.load(variants(), progress=compiling, notice=terminal.notice)
