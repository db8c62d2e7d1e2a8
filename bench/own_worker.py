"""This engine behind a pipe, as `peer_worker.py` serves the others: sessions of `Model`, nothing below them."""

from __future__ import annotations

import time

BEGIN = time.perf_counter()

from typing import Any  # noqa: E402  (what is imported from here on is timed)

from peer_worker import serve  # noqa: E402

from gguf_runtime import Model  # noqa: E402
from gguf_runtime.cli.version import version  # noqa: E402
from gguf_runtime.engine.backend import KernelBackend  # noqa: E402
from gguf_runtime.engine.profile import token_bytes  # noqa: E402
from gguf_runtime.engine.session import Session  # noqa: E402
from quant import cpu  # noqa: E402
from quant.roofs import Roofs  # noqa: E402


class OwnEngine:
    """One model, one session at a time."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self.session: Session | None = None
        self._roofs: Roofs | None = None
        self._past: Session | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "engine": "gguf-runtime",
            "version": version(),
            "build": cpu.isa(),
            "import_s": time.perf_counter() - BEGIN,
        }

    def load(self, model: str, threads: int, context: int, flash: str) -> dict[str, Any]:
        self._drop()
        if self.model is not None:
            self._roofs = None
            self.model.close()
        self.model = m = Model(model, threads=threads, context=context)
        assert isinstance(m.backend, KernelBackend)
        begin = time.perf_counter()
        with m.session() as s:
            s.feed([3])
        first_s = time.perf_counter() - begin
        return {
            "load_s": m.load_s,
            "compile_s": m.compile_s,
            "first_s": first_s,
            "weights_bytes": m.backend.stepper.loaded.weights_bytes,
        }

    def _drop(self) -> None:
        for s in (self.session, self._past):
            if s is not None:
                s.close()
        self.session = self._past = None

    def fill(self, ids: list[int]) -> dict[str, Any]:
        """Read the past that every turn begins after; turns go on from forks of it."""
        assert self.model is not None
        self._drop()
        self._past = self.model.session()
        if ids:
            self._past.feed(ids)
        return {}

    def rewind(self) -> None:
        """Back to the past."""
        assert self._past is not None
        if self.session is not None:
            self.session.close()
        self.session = self._past.fork()

    def feed(self, ids: list[int], pos: int) -> None:
        assert self.session is not None
        assert len(self.session) == pos
        self.session.feed(ids, copy=False)

    def token_bytes(self, pos: int) -> dict[str, int]:
        """Bytes that decoding the token at `pos` reads: packed weights and cache."""
        assert self.model is not None
        assert isinstance(self.model.backend, KernelBackend)
        return {"bytes": token_bytes(self.model.backend.stepper.loaded.tape.rows, pos)}

    def roofs(self) -> dict[str, float]:
        """Bytes per second from memory and multiply-adds per second, by the threads of the model."""
        assert self.model is not None
        assert isinstance(self.model.backend, KernelBackend)
        if self._roofs is None:
            self._roofs = Roofs(self.model.backend.stepper.loaded.pool)
        return {"bandwidth": self._roofs.bandwidth(), "dot_peak": self._roofs.peak("dot")}


if __name__ == "__main__":
    serve(OwnEngine())
