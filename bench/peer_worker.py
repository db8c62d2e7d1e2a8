"""A peer engine behind a pipe: one JSON request a line on stdin, one JSON answer a line on stdout.

Runs with the peer's own Python; GGUF_RUNTIME_TOOLS names the folder with `peer_bench.py`, which knows the peer's API.
The requests are those of `own_worker.py`; see `workers.py`. `--first MODEL TEXT` is a whole program instead: load, read
the text, print the likeliest next token.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()


def import_bench() -> Any:
    path = Path(os.environ["GGUF_RUNTIME_TOOLS"]) / "peer_bench.py"
    spec = importlib.util.spec_from_file_location("peer_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.IK:
        defaults = module.api.llama_context_default_params

        def windowed() -> Any:
            """The peer's defaults, but window layers keep their window only: its decode gains 4 % at depth 2048."""
            params = defaults()
            params.swa_full = False
            return params

        module.api.llama_context_default_params = windowed
    return module


class PeerEngine:
    """The peer with one model and one context."""

    def __init__(self, bench: Any) -> None:
        self.bench, self.peer = bench, None
        self.past: list[int] = []
        self.state: Any = None

    def facts(self) -> dict[str, Any]:
        b = self.bench
        return {
            "engine": b.PEER,
            "version": f"{b.PACKAGE} {b.package_version()}",
            "build": b.system_info().decode().strip(),
            "import_s": time.perf_counter() - BEGIN,
        }

    def load(self, model: str, threads: int, context: int, flash: str) -> dict[str, Any]:
        b = self.bench
        if self.peer is not None:
            self.peer.close_context()
            b.free_model(self.peer.model)
        self.peer = peer = b.Peer(model, repack=not b.IK)
        begin = time.perf_counter()
        peer.context((context + 255) // 256 * 256, threads, "f16", flash)
        peer.feed([3], 0)
        return {"load_s": peer.load_seconds, "first_s": time.perf_counter() - begin}

    def fill(self, ids: list[int]) -> dict[str, Any]:
        """Read the past that every turn begins after; it is kept until the next load."""
        peer = self.peer
        self.bench.kv_clear(peer.ctx)
        self.past, self.state = ids, None
        if ids:
            peer.feed(ids, 0, "none")
            if self.bench.n_swa(peer.model) > 0:  # such a cache forgets: it cannot just be cut
                self.state = self._save()
        return {}

    def rewind(self) -> None:
        """Back to the past."""
        peer, bench = self.peer, self.bench
        if self.state is not None:
            bench.kv_clear(peer.ctx)
            if not self.set_data(peer.ctx, self.state, len(self.state), 0):
                raise SystemExit("the peer does not take its own state back")
        elif not self.past:
            bench.kv_clear(peer.ctx)
        elif not bench.kv_rm(peer.ctx, 0, len(self.past), -1):
            self.fill(self.past)

    def _save(self) -> Any:
        pointer, size, seq = self.bench.P, ctypes.c_size_t, self.bench.I32
        get_size = self.bench.bind("llama_state_seq_get_size", size, pointer, seq)
        get_data = self.bench.bind("llama_state_seq_get_data", size, pointer, pointer, size, seq)
        self.set_data = self.bench.bind(
            "llama_state_seq_set_data", size, pointer, pointer, size, seq
        )
        n = get_size(self.peer.ctx, 0)
        state = ctypes.create_string_buffer(n)
        if get_data(self.peer.ctx, state, n, 0) != n:
            raise SystemExit("the peer does not give its state")
        return state

    def feed(self, ids: list[int], pos: int) -> None:
        self.peer.feed(ids, pos)

    def roofs(self) -> dict[str, float]:
        return {}


def serve(engine: Any) -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        answer = turn(engine, **request) if do == "turn" else getattr(engine, do)(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def turn(
    engine: Any, ids: list[int], depth: int, prompts: list[int], n_decode: int
) -> dict[str, Any]:
    """Seconds of each prompt at position `depth`, and of single tokens after the first prompt."""
    engine.rewind()
    engine.feed(ids[:16], depth)  # weights and code come into the caches
    engine.feed(ids[16:17], depth + 16)
    seconds: dict[str, float] = {}
    wall = cpu = 0.0
    for k, n in enumerate(prompts):
        engine.rewind()
        c, t = time.process_time(), time.perf_counter()
        engine.feed(ids[:n], depth)
        seconds[str(n)] = time.perf_counter() - t
        if k == 0 and n_decode:
            at, t1 = depth + n, time.perf_counter()
            for i in range(n_decode):
                engine.feed([ids[i]], at + i)
            seconds["decode"] = time.perf_counter() - t1
        wall += time.perf_counter() - t
        cpu += time.process_time() - c
    return {"seconds": seconds, "wall_s": wall, "cpu_s": cpu}


def first_token(bench: Any, model: str, text: str) -> None:
    peer = bench.Peer(model, repack=not bench.IK)
    peer.context(256, len(os.sched_getaffinity(0)))
    ids = peer.tokenize(text)
    peer.feed(ids, 0)
    print(int(peer.last_logits(len(ids) - 1).argmax()))


def main() -> None:
    bench = import_bench()
    if sys.argv[1:2] == ["--first"]:
        first_token(bench, sys.argv[2], sys.argv[3])
    else:
        serve(PeerEngine(bench))


if __name__ == "__main__":
    main()
