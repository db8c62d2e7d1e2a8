"""Compiles kernels in a process of its own: `python -m quant.jit` ends up here.

Jobs come as lines of JSON on stdin; a reply is a line of JSON on stdout, then `size` bytes of
object. LLVM ends the whole process when an instruction does not exist, a wrong kernel may crash in
its check: both are then this process's death, not the user's.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from quant.link import callable_at, link
from quant.symbols import read_symbols


class Job(NamedTuple):
    """One kernel to compile; `run` tells whether this CPU can execute it.

    arch, triple  LLVM's words for another kind of machine, "" for this one
    """

    module: str
    factory: str
    params: list[str | int]
    symbol: str
    isa: str
    check: str
    run: bool
    arch: str = ""
    triple: str = ""


class CheckError(Exception):
    """The kernel ran and its bits are not those of its reference."""


def compile_job(job: Job) -> bytes:
    """The object of a kernel: no undefined symbols, equal to its reference where it can be run."""
    from quant.compile import compile_kernel, target

    module = importlib.import_module(job.module)
    kernel = getattr(module, job.factory)(*job.params)
    data = compile_kernel(kernel, job.symbol, job.isa, job.arch or None, job.triple or None)
    symbols = read_symbols(data)
    if symbols.undefined:
        raise TypeError(f"calls what no kernel may call: {', '.join(symbols.undefined)}")
    if job.symbol not in symbols.defined:
        raise TypeError(f"the object does not define {job.symbol}")
    if job.check and job.run and target(job.isa).exact:
        check = _check(module, job.check)
        run = callable_at(link({job.symbol: data})[job.symbol])
        complaint = check(run, job.isa, *job.params)
        if complaint:
            raise CheckError(str(complaint))
    return data


def _check(module: ModuleType, name: str) -> Callable[..., str | None]:
    """The check of this name: in the kernel's module, or where the dotted name says."""
    where, _, last = name.rpartition(".")
    check: Callable[..., str | None] = getattr(
        importlib.import_module(where) if where else module, last
    )
    return check


def serve() -> None:
    """Answer jobs until stdin ends."""
    # Ctrl-C reaches the whole process group; the parent decides what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a kernel's module prints must not stand between replies
    for line in sys.stdin:
        data = b""
        try:
            data = compile_job(Job(**json.loads(line)))
            reply: dict[str, Any] = {"size": len(data)}
        except CheckError as error:
            reply = {"size": 0, "check": str(error)}
        except Exception:  # noqa: BLE001 - whatever it is, the parent reports it
            reply = {"size": 0, "error": traceback.format_exc(limit=-6)}
        replies.write(json.dumps(reply).encode() + b"\n" + data)
        replies.flush()
