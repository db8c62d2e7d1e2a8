from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from gguf_runtime.gguf import open_file
from gguf_runtime.text import Tokenizer

DATA = Path(__file__).parents[2] / "data/text/references.json.xz"


@pytest.fixture(scope="session")
def references() -> dict:
    """Expected results that are committed; tests/data/text/ORIGIN.md."""
    return json.loads(lzma.decompress(DATA.read_bytes()))


@pytest.fixture(scope="session")
def raw_inputs(references) -> list[bytes]:
    return [
        x["text"].encode() if "text" in x else bytes.fromhex(x["hex"]) for x in references["inputs"]
    ]


@pytest.fixture(scope="session")
def stored(golden):
    """A function from a vocabulary's name to its expected results."""

    def read(name: str) -> dict:
        return json.loads((golden / "text/tokenizer" / f"{name}.json").read_text())

    return read


@pytest.fixture(scope="session")
def vocabulary(golden, tmp_path_factory):
    """A function from (name, pre, compat) to a tokenizer; files are unpacked once."""
    folder = tmp_path_factory.mktemp("vocabularies")
    files = {}

    def find(name: str, pre: str | None = None, compat: str = "published") -> Tokenizer:
        if name not in files:
            path = folder / f"{name}.gguf"
            path.write_bytes(lzma.decompress((golden / "vocabs" / f"{name}.gguf.xz").read_bytes()))
            files[name] = open_file(path)
        return Tokenizer.from_gguf(files[name], pre, compat)

    return find


@pytest.fixture(scope="session")
def model_tokenizer(model_path):
    """A function from (catalog name, compat) to the tokenizer in the model's file."""
    files = {}

    def find(name: str, compat: str = "published") -> Tokenizer:
        if name not in files:
            files[name] = open_file(model_path(name))
        return Tokenizer.from_gguf(files[name], compat=compat)

    return find
