"""Tiny models, loaded once for all tests that do not close them."""

import pytest

from gguf_runtime import Model
from tests.tiny import GEMMA3, QWEN3, SMALL, with_template


@pytest.fixture(scope="session")
def qwen():
    with Model(QWEN3, threads=2) as m:
        yield m


@pytest.fixture(scope="session")
def small():
    with Model(SMALL, threads=2, context=8192) as m:
        yield m


@pytest.fixture(scope="session")
def gemma():
    """With windows of 8 positions, and room to leave them behind."""
    with Model(GEMMA3, threads=2, context=4096) as m:
        yield m


@pytest.fixture(scope="session")
def talker(tmp_path_factory):
    """A model with a chat template."""
    path = with_template(tmp_path_factory.mktemp("models") / "talker.gguf")
    with Model(path, threads=2, context=2048) as m:
        yield m


@pytest.fixture
def pages():
    """Pages in use, once garbage and what requests have left behind have been taken back."""
    import gc

    def count(m):
        gc.collect()
        m.backend.forget()
        return m.backend.used_pages

    return count


@pytest.fixture
def counted(monkeypatch):
    """counted(model): a list that grows by the tokens of every step."""

    def counting_in(m):
        counts, step = [], m.backend.step

        def counting(entries, *rest):
            counts.append(sum(len(e.ids) for e in entries))
            return step(entries, *rest)

        monkeypatch.setattr(m.backend, "step", counting)
        return counts

    return counting_in
