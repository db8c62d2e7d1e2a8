"""The kernels of the matmul on all hard cases, as digests that no instruction set may change.

`expected` needs the reference alone, `computed` the kernel alone: the two may be run on different
machines, one of them emulated. Every NaN counts as the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quant import activations, checks, gemm_float, gemm_panel, gemm_stream
from quant.calls import I64, Run, quantize_row, run_all
from quant.formats.layout import F32
from quant.jit import Spec
from quant.types import TYPES, get

COLUMNS = (1, 5, 13)
_ROWS, _TOKENS, _K = 37, 5, 544


class Job(NamedTuple):
    """One row of arguments: the arrays that it names, what is written and how to read that."""

    args: I64
    tasks: int
    reads: tuple[NDArray[Any], ...]
    out: NDArray[Any]
    result: Callable[[NDArray[Any]], NDArray[Any]]


def specs() -> list[Spec]:
    """Every kernel of the matmul: quantizers, and the bodies of every type."""
    found = [activations.quantize.spec(fmt) for fmt in ("a8", "a16")]
    for t in TYPES.values():
        if t.kind == "float":
            found += [gemm_float.floats.spec(t.name, shape) for shape in ("one", "many")]
            continue
        for fmt in ("a8", "a16"):
            found += [gemm_stream.stream.spec(t.name, fmt, n) for n in ("one", "few")]
            found.append(gemm_panel.panel.spec(t.name, fmt))
    return found


def name_of(spec: Spec) -> str:
    """A kernel as `make asm` takes it: stream:Q4_K:a8:one."""
    return ":".join(str(p) for p in (spec.factory, *spec.params))


def problems(spec: Spec) -> Iterator[checks.Problem]:
    """The problems of a body, `max(COLUMNS)` columns each."""
    t = get(spec.params[0])
    fmt = "" if t.kind == "float" else str(spec.params[1])
    for pair in checks.PAIRS:
        yield checks.problem(t, fmt, pair, _ROWS, max(COLUMNS))


def inputs() -> Iterator[F32]:
    """What the quantizer is given."""
    for mode in dict.fromkeys(pair[1] for pair in checks.PAIRS):
        yield checks.activations(np.random.default_rng(0), mode, _TOKENS, _K)


def jobs(spec: Spec, isa: str) -> Iterator[Job]:
    """What a kernel is to be run on."""
    if spec.factory == "quantize":
        fmt = str(spec.params[0])
        for x in inputs():
            out = np.zeros_like(checks.act_blocks(x, fmt, isa))
            result = partial(checks.canonical, fmt=fmt)
            yield Job(quantize_row(x, out), len(x), (x,), out, result)
        return
    for p in problems(spec):
        for n in COLUMNS:
            ready = checks.prepare(p, isa, n)
            reads = ready.weights, ready.acts, ready.scratch
            yield Job(ready.args, ready.sizes.tasks, reads, ready.out, _rows)


def _rows(out: NDArray[Any]) -> NDArray[Any]:
    return out[:, :_ROWS]


def expected(spec: Spec, isa: str) -> str:
    """Digest of what the reference says; the instruction set lays out the quantizer's blocks."""
    if spec.factory == "quantize":
        fmt = str(spec.params[0])
        blocks = (checks.act_blocks(x, fmt, isa) for x in inputs())
        return digest(checks.canonical(b, fmt) for b in blocks)
    results = (p.expected for p in problems(spec))
    return digest(out[:n] for out in results for n in COLUMNS)


def computed(spec: Spec, isa: str, run: Run) -> str:
    """Digest of what a kernel gives."""

    def result(job: Job) -> NDArray[Any]:
        run_all(run, job.args, job.tasks)
        return job.result(job.out)

    return digest(result(job) for job in jobs(spec, isa))


def digest(arrays: Iterable[NDArray[Any]]) -> str:
    """sha256 over float32 results or activation blocks."""
    total = hashlib.sha256()
    for a in arrays:
        if a.dtype == np.float32:
            a = np.where(np.isnan(a), np.float32(np.nan), a)
        total.update(np.ascontiguousarray(a).tobytes())
    return total.hexdigest()
