"""Engines as processes that wait on a pipe, so that they can take turns on the same cores.

Each is started once and keeps its model; between turns its threads sleep, so load time and start-up stay outside what
is measured. Requests: facts, load (model, threads, context, flash), fill (ids), turn (ids, depth, prompts, n_decode);
this engine alone: token_bytes (pos), roofs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ("llama", "ik")  # folders that tools/peers.sh makes


@dataclass(frozen=True, slots=True)
class Engine:
    """What to start: a name for tables, a command, and variables of its environment."""

    name: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **dict(self.env)}


class Worker:
    """A running engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name = engine, engine.name
        self._process = subprocess.Popen(
            engine.command,
            env=engine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request, wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise SystemExit(f"error: {self.name} ended with status {code} in {do}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def tools_dir() -> Path:
    return Path(os.environ.get("GGUF_RUNTIME_TOOLS") or ROOT.parent / "shared" / "tools").resolve()


def own(isa: str | None = None) -> Engine:
    """This checkout, with its best kernels or those of a lower instruction set."""
    env = [("PYTHONPATH", str(ROOT))]
    if isa:
        env.append(("GGUF_RUNTIME_ISA", isa))
    name = f"gguf-runtime ({isa})" if isa else "gguf-runtime"
    return Engine(name, (sys.executable, str(HERE / "own_worker.py")), tuple(env))


def peers() -> list[Engine]:
    """The engines in $PEERS; none where it is not set."""
    home = os.environ.get("PEERS")
    found = []
    for folder in PEERS if home else ():
        python = Path(home or "") / folder / "bin" / "python"
        if python.exists():
            env = (("GGUF_RUNTIME_TOOLS", str(tools_dir())),)
            command = (str(python), str(HERE / "peer_worker.py"))
            found.append(Engine({"llama": "llama.cpp", "ik": "ik_llama.cpp"}[folder], command, env))
    return found


@dataclass(frozen=True, slots=True)
class Spent:
    """A process from its start to its end: seconds, most memory (mapped pages included), stdout."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    said: str


def spend(command: tuple[str, ...], env: dict[str, str]) -> Spent:
    """Run a program to its end; SystemExit where it ends with another status than 0."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        out.seek(0)
        said = out.read().decode(errors="replace")
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"error: {' '.join(command)} ended with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Spent(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, said)


def first_token(engine: Engine, model: Path) -> Spent:
    """A whole program from its start to one token: ours is the installed command, a peer's a short script."""
    if engine.name.startswith("gguf-runtime"):
        program = Path(sys.executable).with_name("gguf-runtime")
        options = ("-n", "1", "--temperature", "0", "--raw", "--json")
        command: tuple[str, ...] = (str(program), "run", str(model), *options, "hi")
    else:
        command = (*engine.command, "--first", str(model), "hi")
    return spend(command, engine.environment)
