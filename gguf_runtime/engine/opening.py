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
from gguf_runtime.engine.backend import Backend, KernelBackend
from gguf_runtime.engine.border import BORDER
from gguf_runtime.engine.checks import one_of
from gguf_runtime.engine.completion import Notice
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.engine.pack_cache import PackFile, keep_packs
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
    """What came of it; memory is None with exact arithmetic, packs where no file holds them."""

    backend: Backend
    threads: int
    isa: str
    memory: MemoryPlan | None = None
    packs: PackFile | None = None
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
    pack_cache: bool,
) -> MemoryPlan:
    """What loading would take; MachineError where it would not fit."""
    sizer, trained = _sizer(path, precision, cache_type, threads, max_memory, pack_cache)
    return sizer.choose(trained, context)[0]


def foresee(
    path: Path,
    context: Context,
    *,
    precision: str = "int8",
    cache_type: str = "f16",
    threads: int | None = None,
    max_memory: int | None = None,
    pack_cache: bool = False,
) -> tuple[MemoryPlan, list[Notice], int]:
    """What loading would take, fit or not; what is to be said; the largest context that fits, or 0."""
    sizer, trained = _sizer(path, precision, cache_type, threads, max_memory, pack_cache)
    return *sizer.wanted(trained, context), sizer.largest(trained)


def _sizer(
    path: Path,
    precision: str,
    cache_type: str,
    threads: int | None,
    max_memory: int | None,
    pack_cache: bool,
) -> tuple[Sizer, int]:
    """What plans memory for a file, and the context that it was trained with."""
    from gguf_runtime.gguf import open_file

    check_kinds(precision, cache_type)
    with open_file(path) as file, BORDER:
        plan = make_plan(load_arch(file).graph, precision)
        cache = plan_cache(plan.layers, cache_type)
        sizer = Sizer(plan, cache, default_threads(threads), max_memory, pack_cache)
        return sizer, file.manifest().n_ctx


def open_backend(
    file: GGUFFile,
    n_tokens: int,
    *,
    precision: str,
    cache_type: str,
    threads: int | None,
    context: Context,
    max_memory: int | None,
    pack_cache: bool,
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
        from gguf_runtime.engine.exact_backend import ExactBackend
        from gguf_runtime.graph.exact import Exact

        limit = context if isinstance(context, int) else trained
        return Opened(ExactBackend(Exact(arch.graph, file), limit, n_tokens), 1, "exact")
    plan = make_plan(arch.graph, precision)
    cache = plan_cache(plan.layers, cache_type)
    sizer = Sizer(plan, cache, n_threads, max_memory, pack_cache)
    memory, notices = sizer.choose(trained, context)

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
            kept = keep_packs(file, plan.matrices(), pool, progress, told) if pack_cache else None
            if pack_cache and kept is None:  # then they must fit
                memory, more = Sizer(plan, cache, n_threads, max_memory).choose(trained, context)
                notices[:0] = more
            batch = n_batch(memory.context)
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
                packs=kept.packs if kept else None,
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
        kept,
        notices,
        compile_s + loaded.compile_s,
    )
