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
from quant.types import Type

if TYPE_CHECKING:
    from quant.pool import Pool, Row

COLUMNS = 512  # at once: their accumulators, 128 KB for a task of 4 strips, stay in the cache
FEW = 8  # columns up to which codes are unpacked in registers
TASKS_PER_THREAD = 8  # enough to share the work evenly with a thread that is slower
# Of a task: the panels of more would not share the first-level cache with a tile of columns.
MOST_STRIPS = 4

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
    one, few, many = bodies_of(t, fmt)
    body = one if n == 1 else few if n <= FEW else many
    quantize = activations.quantize.spec(fmt)
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


def bodies_of(t: Type, fmt: str) -> tuple[jit.Spec, jit.Spec, jit.Spec]:
    """The kernels for one column, for up to `FEW`, and for more."""
    if t.kind == "float":
        one, many = (gemm_float.floats.spec(t.name, shape) for shape in ("one", "many"))
        return one, many, many
    one, few = (gemm_stream.stream.spec(t.name, fmt, shape) for shape in ("one", "few"))
    return one, few, gemm_panel.panel.spec(t.name, fmt)


def strips_per_task(n_strips: int, threads: int) -> int:
    """Strips of one task: few enough that all threads have work to the end.

    Always an even number: a register tile of AVX-512 spans two strips, and a group of 32 rows of a
    gated product is quantized by the task that made it.
    """
    wanted = min(MOST_STRIPS, n_strips // (threads * TASKS_PER_THREAD))
    return max(2, wanted // 2 * 2)


def _pool(threads: int) -> Pool:
    """The threads of earlier calls; new ones in a forked process."""
    from quant.pool import Pool

    pool = _pools.get(threads)
    if pool is None or pool.team.closed or pool.team.pid != os.getpid():
        pool = _pools[threads] = Pool(threads)
    return pool
