"""Models as tests want them: any plan, any cache, stepped by hand, and the digest of what comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.arch.table import load
from gguf_runtime.cache.pool import Cache, plan_cache
from gguf_runtime.cache.pool import Sequence as Positions
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.engine.step import Entry, Stepper
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.plan import make_plan
from quant.pool import Pool

F32 = NDArray[np.float32]


@contextmanager
def stepper(
    path: Path,
    *,
    precision: str = "int8",
    fuse: bool | Collection[str] = True,
    cache_type: str = "f16",
    threads: int = 2,
    n_ctx: int = 2048,
    n_batch: int = 512,
) -> Iterator[Stepper]:
    """A loaded model; 64 outputs and 8 sequences per step."""
    with open_file(path) as file:
        arch = load(file)
        plan = make_plan(arch.graph, precision, fuse)
        cache = plan_cache(plan.layers, cache_type)
        pool = Pool(threads)
        try:
            loaded = Loaded(
                file,
                arch,
                plan,
                cache,
                cache_type,
                pool,
                n_ctx=n_ctx,
                n_batch=n_batch,
                n_outputs=64,
                n_sequences=8,
            )
            yield Stepper(loaded, Cache(cache, n_ctx, n_batch))
        finally:
            pool.close()


def feed(
    model: Stepper,
    ids: Sequence[int],
    chunks: int | Iterable[int] = 64,
    wanted: Collection[int] | None = None,
    sequence: Positions | None = None,
) -> F32:
    """Logits of the wanted positions (all unless said otherwise), read in chunks of these sizes."""
    own = model.cache.sequence() if sequence is None else sequence
    sizes = iter(chunks) if not isinstance(chunks, int) else None
    parts, at, start = [], 0, own.length
    while at < len(ids):
        n = chunks if isinstance(chunks, int) else next(sizes or iter(()), len(ids))
        part = ids[at : at + n]
        rows = [k for k in range(len(part)) if wanted is None or start + at + k in wanted]
        parts.append(model.step([Entry(own, part, rows)])[0].copy())
        at += len(part)
    if sequence is None:
        own.close()
    return np.concatenate(parts)


def random_ids(n_vocab: int, n: int, seed: int = 0) -> list[int]:
    """Token ids; the same for the same arguments on every machine."""
    words = np.random.Generator(np.random.Philox(key=seed)).random(n)
    return [int(w * n_vocab) for w in words]


def digest(x: F32) -> str:
    """sha256 of float32 bits, every NaN taken for one."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).copy()
    bits[np.isnan(x)] = 0x7FC00000
    return hashlib.sha256(bits.astype("<u4").tobytes()).hexdigest()


def same_bits(a: F32, b: F32) -> bool:
    """Whether two arrays hold the same bits, every NaN taken for one."""
    return a.shape == b.shape and digest(a) == digest(b)
