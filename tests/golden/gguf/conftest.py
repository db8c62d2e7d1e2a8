from __future__ import annotations

from pathlib import Path

import pytest

from gguf_runtime.errors import FileError
from gguf_runtime.gguf import GGUFFile, open_file


class Files:
    """Writes bytes to a file and opens it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, raw: bytes, name: str = "m.gguf") -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)  # an older file of this name may still be mapped
        path.write_bytes(raw)
        return path

    def open(self, raw: bytes, **options) -> GGUFFile:
        return open_file(self.write(raw), **options)

    def refusal(self, raw: bytes) -> str:
        """What the error says in full."""
        with pytest.raises(FileError) as caught:
            self.open(raw)
        text = str(caught.value)
        assert text.startswith(str(self.folder))
        assert 1 <= text.count("\n") + 1 <= 3
        return text


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
