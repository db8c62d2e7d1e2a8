"""Matrix products for callers that have no tape: the contract's bits on any number of threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from quant import activations, cpu, gemm, gemm_float, gemm_panel, gemm_stream, jit
from quant.calls import FORMATS, Sizes, act_bytes, address, aligned, quantize_row
from quant.errors import QuantError
from quant.formats.layout import F32
from quant.packing import Pack

if TYPE_CHECKING:
    from quant.pool import Pool, Row

COLUMNS = 512  # at once: their accumulators, 128 KB for a task of 4 strips, stay in the cache
FEW = 8  # columns up to which codes are unpacked in registers
TASKS_PER_THREAD = 8  # enough to share the work evenly with a thread that is slower
MOST_STRIPS = 4  # of a task

_pools: dict[int, Pool] = {}


def matmul(pack: Pack, x: F32, threads: int = 1, precision: str = "int8") -> F32:
    """Multiply activations by packed weights.

    Args:
        pack: from `pack()`, rows x k.
        x: (n, k) float32; only read.
        threads: 1 to the number of cores that this process may use.
        precision: "int8" or "int16", what activations are quantized to; float types keep float32.

    Returns:
        (n, rows) float32, new; the same bits for every n, every `threads` and every CPU.

    Raises:
        QuantError: k differs from the pack's, x is not float32, or an argument has no such value.
    """
    if precision not in FORMATS:
        raise QuantError(
            f"precision {precision!r} is not known", expected=f"one of {', '.join(FORMATS)}"
        )
    if x.ndim != 2 or x.dtype != np.float32 or x.shape[1] != pack.k:
        raise QuantError(
            "activations do not fit the matrix",
            expected=f"float32 (n, {pack.k})",
            got=f"{x.dtype} {x.shape}",
        )
    most = len(cpu.cores().allowed)
    if not 1 <= threads <= most:
        raise QuantError("no such number of threads", expected=f"1 to {most}", got=threads)
    out = np.empty((len(x), pack.rows), np.float32)
    for first in range(0, len(x) if pack.rows else 0, COLUMNS):
        part = np.ascontiguousarray(x[first : first + COLUMNS])
        _chunk(pack, part, out[first : first + COLUMNS], threads, FORMATS[precision])
    return out


def _chunk(pack: Pack, x: F32, out: F32, threads: int, fmt: str) -> None:
    from quant.pool import Row

    t, (n, k) = pack.type, x.shape
    tile = strips_per_task(pack.n_strips, threads)
    sizes = Sizes(t, n, k, pack.rows, tile)
    scratch = aligned(threads * sizes.scratch_bytes)
    body, quantize = body_of(pack, fmt, n), activations.quantize.spec(fmt)
    kernels = jit.load([body] if t.kind == "float" else [body, quantize])
    rows: list[Row] = []
    if t.kind == "float":
        acts = aligned((n + gemm.SLACK) * k * 4)
        acts.view(np.float32)[: n * k] = x.reshape(-1)
    else:
        acts = aligned(act_bytes(n, k, fmt))
        into = quantize_row(x, acts)
        rows.append(Row(kernels[quantize], address(into), n))
    args = sizes.row(pack.address, address(acts), address(out), out.strides[0], address(scratch))
    rows.append(Row(kernels[body], address(args), sizes.tasks))
    _pool(threads).tape(rows).run()


def body_of(pack: Pack, fmt: str, n: int) -> jit.Spec:
    """The kernel that suits n columns."""
    name = pack.type.name
    if pack.type.kind == "float":
        return gemm_float.floats.spec(name, "one" if n == 1 else "many")
    if n > FEW:
        return gemm_panel.panel.spec(name, fmt)
    return gemm_stream.stream.spec(name, fmt, 1 if n == 1 else 4)


def strips_per_task(n_strips: int, threads: int) -> int:
    """Few enough that all threads have work to the end; even, as register tiles may span two."""
    wanted = min(MOST_STRIPS, n_strips // (threads * TASKS_PER_THREAD))
    return max(2, wanted // 2 * 2)


def _pool(threads: int) -> Pool:
    """The threads of earlier calls; new ones in a forked process."""
    from quant.pool import Pool

    pool = _pools.get(threads)
    if pool is None or pool.team.closed or pool.team.pid != os.getpid():
        pool = _pools[threads] = Pool(threads)
    return pool
