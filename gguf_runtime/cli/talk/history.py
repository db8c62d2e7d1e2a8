"""Lines of earlier conversations, for the arrow keys, in a file that its owner alone can read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from gguf_runtime.engine.messages import OWNER_ONLY

LARGEST = 1 << 20  # bytes; of a larger file the last half is kept


class PrivateHistory(FileHistory):
    """A file of mode 0600; where it cannot be written, lines are remembered until the end."""

    def load_history_strings(self) -> Iterable[str]:
        """What is there, newest first; nothing where it cannot be read."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Add a line; what cannot be encoded or written is left out."""
        with contextlib.suppress(OSError, UnicodeEncodeError):
            os.close(os.open(self.filename, os.O_CREAT | os.O_WRONLY, OWNER_ONLY))
            super().store_string(string)


def open_history(path: Path | None) -> History:
    """The history in a file, or (None) one of this conversation alone."""
    if path is None:
        return InMemoryHistory()
    with contextlib.suppress(OSError):
        _shorten(path)
    return PrivateHistory(str(path))


def _shorten(path: Path) -> None:
    if not path.is_file() or path.stat().st_size <= LARGEST:
        return
    entries = path.read_bytes()[-LARGEST // 2 :].split(b"\n# ", 1)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with os.fdopen(handle, "wb") as f:
        f.write(b"\n# " + entries[-1])
    os.replace(scratch, path)
