import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def figures():
    """Errors that llama.cpp reaches, by type name; tests/data/quants/ORIGIN.md."""
    return json.loads((Path(__file__).parents[2] / "data/quants/figures.json").read_text())
