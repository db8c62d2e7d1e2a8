"""From an open file to a backend: plan memory, load, compile; or set up exact arithmetic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gguf_runtime.arch.table import load as load_arch
from gguf_runtime.cache.pool import Cache, plan_cache
from gguf_runtime.engine.backend import Backend, ExactBackend, KernelBackend
from gguf_runtime.engine.border import BORDER
from gguf_runtime.engine.checks import one_of
from gguf_runtime.engine.completion import Notice
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.engine.packs import specs_of
from gguf_runtime.engine.sampler import SPECS as SAMPLER
from gguf_runtime.engine.sampler import Sampler
from gguf_runtime.engine.sizing import (
    Context,
    MemoryPlan,
    Sizer,
    default_threads,
    n_batch,
    n_outputs,
)
from gguf_runtime.engine.step import Stepper
from gguf_runtime.engine.vocabulary import SPECS as VOCABULARY
from gguf_runtime.errors import ModelError
from gguf_runtime.graph.plan import make_plan
from quant import cpu, jit, pool_kernels
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

Progress = Callable[[str, int, int], None]

PRECISIONS = ("int8", "int16")
CACHE_TYPES = ("f16", "f32", "q8_0")
N_SEQUENCES = 64  # most sequences of a step


@dataclass(slots=True)
class Opened:
    """What came of it; memory is None with exact arithmetic."""

    backend: Backend
    threads: int
    isa: str
    memory: MemoryPlan | None = None
    notices: list[Notice] = field(default_factory=list)
    compile_s: float = 0.0


def exact_arithmetic() -> bool:
    """Whether GGUF_RUNTIME_EXACT asks for float64 numpy."""
    return os.environ.get("GGUF_RUNTIME_EXACT", "") not in ("", "0")


def check_kinds(precision: str, cache_type: str) -> None:
    """RequestError for words that name no precision or no type of cache."""
    one_of("precision", precision, PRECISIONS)
    one_of("cache type", cache_type, CACHE_TYPES)


def plan_memory(
    path: Path,
    context: Context,
    precision: str,
    cache_type: str,
    threads: int | None,
    max_memory: int | None,
) -> MemoryPlan:
    """What loading would take; MachineError where it would not fit."""
    from gguf_runtime.gguf import open_file

    check_kinds(precision, cache_type)
    with open_file(path) as file, BORDER:
        plan = make_plan(load_arch(file).graph, precision)
        cache = plan_cache(plan.layers, cache_type)
        sizer = Sizer(plan, cache, default_threads(threads), max_memory)
        return sizer.choose(file.manifest().n_ctx, context)[0]


def open_backend(
    file: GGUFFile,
    n_tokens: int,
    *,
    precision: str,
    cache_type: str,
    threads: int | None,
    context: Context,
    max_memory: int | None,
    progress: Progress | None,
) -> Opened:
    """Everything that computes, for a file whose vocabulary has n_tokens tokens.

    Raises:
        ModelError: the model is not supported, or its parts do not fit together.
        MachineError: no memory, threads or kernels; RequestError: an option out of range.
    """
    arch = load_arch(file)
    n_vocab, trained = arch.graph.n_vocab, file.manifest().n_ctx
    if n_vocab < n_tokens:
        raise ModelError(
            "the vocabulary has tokens that the embedding lacks",
            where=file.path,
            expected=f"at least {n_tokens:,} rows of token_embd.weight",
            got=f"{n_vocab:,}",
        )
    n_threads = default_threads(threads)
    if exact_arithmetic():
        from gguf_runtime.graph.exact import Exact

        limit = context if isinstance(context, int) else trained
        return Opened(ExactBackend(Exact(arch.graph, file), limit, n_tokens), 1, "exact")
    plan = make_plan(arch.graph, precision)
    cache = plan_cache(plan.layers, cache_type)
    sizer = Sizer(plan, cache, n_threads, max_memory)
    memory, notices = sizer.choose(trained, context)
    batch = n_batch(memory.context)

    def told(code: str, message: str) -> None:
        notices.append(Notice(code, message))

    def compiling(done: int, total: int, name: str) -> None:
        if progress is not None:
            progress("compiling kernels", done, total)

    begin = time.perf_counter()
    with BORDER:
        specs = (*pool_kernels.SPECS, *SAMPLER, *VOCABULARY, *specs_of(plan.matrices()))
        kernels = jit.load(specs, progress=compiling, notice=told)
        compile_s = time.perf_counter() - begin
        pool = Pool(n_threads, kernels)
        try:
            loaded = Loaded(
                file,
                arch,
                plan,
                cache,
                cache_type,
                pool,
                n_ctx=memory.context,
                n_batch=batch,
                n_outputs=n_outputs(n_vocab, batch),
                n_sequences=N_SEQUENCES,
                isa=kernels.isa,
                progress=progress,
                notice=told,
            )
            if loaded.kernels.isa == cpu.NO_FMA:
                told("no-fma", "this CPU has no fma: slower, and results differ in the last digits")
            most = min(N_SEQUENCES, loaded.n_outputs)
            sampler = Sampler(pool, kernels, n_tokens, most)  # rows that only pad are never chosen
            pages = Cache(
                cache,
                memory.context,
                batch,
                limit_bytes=memory.cache_limit,
                usual_bytes=memory.cache + memory.kept,
            )
            backend = KernelBackend(Stepper(loaded, pages), sampler)
        except BaseException:
            pool.close()
            raise
    return Opened(
        backend,
        n_threads,
        loaded.kernels.isa,
        memory,
        notices,
        compile_s + loaded.compile_s,
    )
