"""Has kernels compiled by worker processes, as many as cores and memory allow.

One thread here waits on each worker. A worker that dies (LLVM aborts it when an instruction does
not exist) is a fact about the instruction set; one that the system killed for memory is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from quant import cpu
from quant.errors import QuantError
from quant.jit import DiedError, Progress, Spec
from quant.worker import CheckError, Job, compile_job

WORKER_BYTES = 300 << 20  # Numba, LLVM and one kernel in the making
STDERR_TAIL = 2000

Foreign = tuple[str, str]  # LLVM's architecture and triple of another kind of machine
Maker = Callable[[Spec], Job]
Done = queue.SimpleQueue[tuple[Spec, bytes | BaseException]]


class Worker:
    """One process, and what it last said on stderr."""

    def __init__(self) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        pipe = subprocess.PIPE
        # -P: -m alone imports from the current directory first, which may hold another `quant`.
        command = [sys.executable, "-P", "-m", "quant.jit"]
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.said, env=_environ()
        )

    def ask(self, job: Job) -> bytes:
        """Have one kernel compiled.

        Raises DiedError, CheckError, QuantError, or MemoryError when the system killed the worker.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        head = data = b""
        reply: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # a broken pipe: it died before it read the job
            stdin.write(json.dumps(job._asdict()).encode() + b"\n")
            stdin.flush()
            head = stdout.readline()
        if head.endswith(b"\n"):
            reply = json.loads(head)
            data = stdout.read(int(reply["size"]))
            if "check" in reply:
                raise CheckError(reply["check"])
            if "error" in reply:
                raise QuantError(
                    f"{job.symbol} does not compile for {job.isa}", hint=reply["error"]
                )
            if len(data) == reply["size"]:
                return data
        code = self.process.wait()
        if -code == getattr(signal, "SIGKILL", 9):
            raise MemoryError
        raise DiedError(f"the compiler of {job.symbol} ended with {_end(code)}", self._tail())

    def close(self) -> None:
        """End the process at once; nobody may be asking it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.said):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _tail(self) -> str:
        self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, self.said.tell() - STDERR_TAIL))
        return self.said.read().decode("utf-8", "replace").strip()


class Crew:
    """The workers of one build; none is hired once it is over."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._over = False
        self._lock = threading.Lock()

    def hire(self) -> Worker | None:
        """One more worker; None when it is over, or when no process can be started."""
        with self._lock, contextlib.suppress(OSError):
            if not self._over:
                self.workers.append(Worker())
                return self.workers[-1]
        return None

    def dismiss(self) -> None:
        """End every worker; whoever asks one gets MemoryError."""
        with self._lock:
            self._over = True
            for worker in self.workers:
                worker.process.kill()


def build(
    specs: list[Spec],
    isa: str,
    publish: Callable[[Spec, bytes], None],
    progress: Progress | None = None,
    foreign: Foreign | None = None,
) -> None:
    """Compile kernels; `publish` gets each one, in this thread, as it is ready.

    `publish` gets b"" for the kernel that ends the attempt with DiedError. With `foreign` they are
    for another kind of machine, and not tried here.
    """
    make = partial(_job, isa=isa, foreign=foreign)
    count = min(cpu.cores().threads, len(specs), cpu.memory().available_bytes // WORKER_BYTES)
    jobs: queue.SimpleQueue[Spec] = queue.SimpleQueue()
    done: Done = queue.SimpleQueue()
    for spec in specs:
        jobs.put(spec)
    crew, threads = Crew(), []
    try:
        for _ in range(max(1, count)):
            if (worker := crew.hire()) is not None:
                args = (crew, worker, make, jobs, done)
                threads.append(threading.Thread(target=_drive, args=args, daemon=True))
                threads[-1].start()
        if threads:
            _collect(specs, make, done, publish, progress)
        else:
            _build_here(specs, make, publish, progress)
    finally:
        crew.dismiss()
        for thread in threads:
            thread.join()
        for worker in crew.workers:
            worker.close()


def _collect(
    specs: list[Spec],
    make: Maker,
    done: Done,
    publish: Callable[[Spec, bytes], None],
    progress: Progress | None,
) -> None:
    if progress is not None:
        progress(0, len(specs), specs[0].symbol)
    for n in range(1, len(specs) + 1):
        spec, result = done.get()
        if isinstance(result, MemoryError):
            result = _again(make(spec))
        if isinstance(result, CheckError):
            result = DiedError(f"{spec.symbol} differs from its reference: {result}")
        if isinstance(result, DiedError):
            publish(spec, b"")
        if isinstance(result, BaseException):
            raise result
        publish(spec, result)
        if progress is not None:
            progress(n, len(specs), spec.symbol)


def _again(job: Job) -> bytes | BaseException:
    """The kernel whose worker was killed, in a worker of its own."""
    worker = Worker()
    try:
        return worker.ask(job)
    except MemoryError:
        return QuantError(
            f"the compiler of {job.symbol} was killed twice, probably for lack of memory",
            expected=f"about {WORKER_BYTES >> 20} MB to be free",
            hint="free some memory and start again: what is compiled is kept",
        )
    except (DiedError, CheckError, QuantError) as error:
        return error
    finally:
        worker.close()


def _drive(
    crew: Crew, worker: Worker | None, make: Maker, jobs: queue.SimpleQueue[Spec], done: Done
) -> None:
    """Feed one worker until no job is left; after its death go on with a new one."""
    while worker is not None:
        try:
            spec = jobs.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((spec, worker.ask(make(spec))))
        except (MemoryError, DiedError) as error:
            worker = crew.hire()
            done.put((spec, error))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            done.put((spec, error))
    with contextlib.suppress(queue.Empty):  # no process to be had: each is tried once more
        while True:
            done.put((jobs.get_nowait(), MemoryError()))


def _build_here(
    specs: list[Spec],
    make: Maker,
    publish: Callable[[Spec, bytes], None],
    progress: Progress | None,
) -> None:
    """Compile in this process, where no other can be started."""
    for n, spec in enumerate(specs):
        if progress is not None:
            progress(n, len(specs), spec.symbol)
        try:
            publish(spec, compile_job(make(spec)))
        except CheckError as error:
            publish(spec, b"")
            raise DiedError(f"{spec.symbol} differs from its reference: {error}") from error
    if progress is not None:
        progress(len(specs), len(specs), specs[-1].symbol)


def _job(spec: Spec, isa: str, foreign: Foreign | None) -> Job:
    arch, triple = foreign or ("", "")
    can_run = not foreign and isa in cpu.supported()
    params = list(spec.params)
    return Job(
        spec.module, spec.factory, params, spec.symbol, isa, spec.check, can_run, arch, triple
    )


def _environ() -> dict[str, str]:
    """Our environment and import path, without the user's settings for Numba."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in sys.path)
    return env


def _end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
