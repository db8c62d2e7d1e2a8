"""Where models live.

`GGUF_RUNTIME_MODELS`, else `$XDG_DATA_HOME/gguf-runtime/models`, else the data folder that the
system keeps for programs. Reading never creates a folder.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gguf_runtime.errors import MachineError

MAGIC = b"GGUF"


def models_dir() -> Path:
    """The folder of pulled models; it need not exist."""
    named = os.environ.get("GGUF_RUNTIME_MODELS")
    if named:
        return Path(os.path.expanduser(named))
    data_home = os.environ.get("XDG_DATA_HOME")
    if data_home and os.path.isabs(data_home):
        return Path(data_home) / "gguf-runtime" / "models"
    import platformdirs

    try:
        folder = platformdirs.user_data_path("gguf-runtime", appauthor=False)
    except RuntimeError:  # no HOME, and a user whom nobody knows
        folder = Path()
    if not folder.is_absolute():
        raise MachineError(
            "no home folder is known to keep models in",
            hint="name one: export GGUF_RUNTIME_MODELS=/some/folder",
        )
    return folder / "models"


def network_is_off() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")


def has_magic(path: Path) -> bool:
    """Whether a file starts as GGUF files do, whatever its name. Never waits for a pipe."""
    return head(path, len(MAGIC)) == MAGIC


def head(path: Path, limit: int) -> bytes:
    """The first bytes of a regular file; b"" where it is none or may not be read."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(handle, limit) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(handle)
