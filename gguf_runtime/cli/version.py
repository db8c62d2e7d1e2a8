"""The facts of `--version`, from package metadata and the CPU."""

from __future__ import annotations

import platform


def version() -> str:
    """The version of this package; "unknown" in a checkout that was never installed."""
    return of("gguf-runtime")


def version_line() -> str:
    """Version, Python, numba, instruction set."""
    from quant import cpu
    from quant.errors import QuantError

    try:
        isa = cpu.isa()
    except QuantError:
        isa = "none with kernels"
    python, numba = platform.python_version(), of("numba")
    return f"gguf-runtime {version()} (Python {python}, numba {numba}, isa {isa})"


def of(name: str) -> str:
    """The version of an installed package, or "unknown"."""
    from importlib import metadata  # 30 ms, so not before it is needed

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
