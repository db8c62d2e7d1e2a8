"""The facts of `--version`, read from package metadata: nothing heavy is imported."""

from __future__ import annotations

import platform


def version() -> str:
    """The version of this package; "unknown" in a checkout that was never installed."""
    return _of("gguf-runtime")


def version_line() -> str:
    """Version, Python, numba."""
    return f"gguf-runtime {version()} (Python {platform.python_version()}, numba {_of('numba')})"


def _of(name: str) -> str:
    from importlib import metadata  # 30 ms, so not before it is needed

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
