"""`warmup`: compile kernels now, so that the first answer does not wait for them."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli.load import check_isa, load
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.terminal import OutputError, Terminal, current
from gguf_runtime.engine.border import BORDER
from gguf_runtime.errors import FileError
from gguf_runtime.hub.resolve import size

SMALL_CONTEXT = "256"  # kernels do not depend on it, memory does


def warmup(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="only what this model needs (default: every kernel)"),
    ] = None,
    cache_type: o.CacheTypeOption = "f16",
    precision: o.PrecisionOption = "int8",
    pack_cache: o.PackCache = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            rich_help_panel="other machines",
            help="compile for another kind of machine, with -o; `doctor` lists the names",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel="other machines",
            help="write compiled kernels to this file",
        ),
    ] = None,
    bring: Annotated[
        str | None,
        typer.Option(
            "--import",
            metavar="FILE",
            rich_help_panel="other machines",
            help="take kernels from such a file, which is code: numba is not needed then",
        ),
    ] = None,
) -> None:
    """Compile the kernels of a model, or all of them, and keep them in the cache folder.

    Nothing is compiled twice: a second call returns at once. With --pack-cache the model's packed
    weights are written too.

    For a machine without a compiler: `warmup --target linux-arm64 -o kernels.bin` here, and
    `warmup --import kernels.bin` there.
    """
    terminal = current()
    begin = time.monotonic()
    if bring is not None:
        if target or output or model:
            raise UsageError("--import goes with no model, --target or --output")
        _import(terminal, bring)
        return
    if target is not None or output is not None:
        if output is None:
            raise UsageError("--target needs -o FILE to write to")
        if model is not None:
            raise UsageError("--target takes all kernels, not those of a model")
        _export(terminal, target, output)
        return
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


def _export(terminal: Terminal, name: str | None, output: str) -> None:
    """All kernels for a machine of this name, in a file."""
    from gguf_runtime.cli.kernels import variants
    from quant import bundle, targets
    from quant.errors import QuantError

    try:
        machine = targets.machine(name or targets.here() or "")
    except QuantError as e:
        raise UsageError(f"--target: {e.what}", f"expected {e.expected}") from e

    def compiling(done: int, total: int, kernel: str) -> None:
        terminal.progress(f"compiling kernels for {machine.system}", done, total)

    with BORDER:
        found = bundle.collect(machine, variants(), compiling, terminal.notice)
    terminal.clear()
    try:
        digest = bundle.write(output, machine.system, found)
        n_bytes = os.stat(output).st_size
    except OSError as e:
        raise OutputError(e, output) from e
    terminal.say(
        f"{output}: {len(found)} kernels for {machine.system} ({', '.join(machine.isas)}),"
        f" {size(n_bytes)}"
    )
    if not machine.alone:
        terminal.say("llvmlite must be there to load them, and they were never run")
    terminal.say(f"sha256 {digest}")


def _import(terminal: Terminal, path: str) -> None:
    """Kernels of a file into the cache."""
    from quant import bundle, jit
    from quant.errors import QuantError

    try:
        found = bundle.read(path)
        counts = bundle.install(found, jit.shared_store(terminal.notice))
    except OSError as e:
        raise FileError(f"cannot be read: {e.strerror or e}", where=path) from e
    except (QuantError, ValueError, KeyError, TypeError) as e:
        what, hint = (e.what, e.hint) if isinstance(e, QuantError) else (f"is damaged: {e}", None)
        more = {"expected": e.expected, "got": e.got} if isinstance(e, QuantError) else {}
        raise FileError(what, where=path, hint=hint, **more) from e
    terminal.say(f"sha256 {found.digest}, made by {found.compiler}")
    kinds = ", ".join(f"{n} for {isa}" for isa, n in counts.items())
    terminal.say(f"kernels are ready: {kinds}")


def _all(terminal: Terminal) -> None:
    from gguf_runtime.cli.kernels import variants
    from quant import jit

    check_isa()

    def compiling(done: int, total: int, name: str) -> None:
        terminal.progress("compiling kernels", done, total)

    jit.load(variants(), progress=compiling, notice=terminal.notice)
