"""What the matmul kernels share: their argument row, their scratch, their last step.

    gemm_stream  integer types, one to eight columns at a time straight from the strip
    gemm_panel   integer types, many columns
    gemm_float   float types

args   slots of 8 bytes, named below; nothing aliases but `resid` and `out`, which may be the same
       rows. Strides in bytes
task   `tile` strips of 16 rows
does   out[column][row] = sum over k of weight * activation (+ bias[row]) (+ resid[column][row]);
       design part 4
exact  equals `quant.reference.matmul_bits` for every number of columns: one order of operations
       per output value
reads  activation blocks of up to `SLACK` columns behind the last one (their results are dropped),
       so buffers carry that much slack; packs are never read past their end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quant.simd import v
from quant.simd.layout import SUM16, SUM32
from quant.simd.values import Addr, F, S, W
from quant.types import Type

if TYPE_CHECKING:
    from quant.simd.dots import Code, Scales
    from quant.simd.layout import Act, Codes
    from quant.simd.words import Words

    Plane = tuple[Code, Codes, int]  # bytes of a step, what they are, what they count

# Argument slots, in bytes. N_GROUPS counts 32 values of k, for float types single ones.
N_COLUMNS, WEIGHTS, ACTS_AT, OUT, LD_OUT, BIAS, RESID, LD_RESID = range(0, 64, 8)
N_ROWS, N_GROUPS, STRIP_BYTES, TILE, N_STRIPS, SCRATCH, SCRATCH_BYTES, LD_X = range(64, 128, 8)
N_SLOTS = 16

SLACK = 8  # columns that a register tile may read behind the last one
# Bytes ahead of what is read: into the second-level cache, far enough that memory's full rate is in
# flight (the fill buffers of the first level alone hold 0.6 to 0.9 of it), then into the first.
FAR, NEAR = 8192, 3072

# Scratch of one thread: unpacked sub-scales, the panels of a register tile, what accumulators of a
# column start at, the accumulators.
SCALES_BYTES = 256
PANEL_BYTES = 7296  # of a strip and 256 values of k, see `gemm_panel`
PANELS = 2
MOST_COLUMNS = 192  # that a sweep takes together, so that scratch stays small
STARTS_BYTES = 128  # of a column


def scratch_bytes(n_columns: int, tile: int) -> int:
    """Scratch that one thread needs for up to `n_columns` columns and `tile` strips a task.

    A register tile spans up to two strips, so the last one of an odd task has a silent neighbour.
    """
    columns = min(n_columns, MOST_COLUMNS) + SLACK
    head = SCALES_BYTES + PANELS * PANEL_BYTES + columns * STARTS_BYTES
    return head + (tile + tile % 2) * columns * 64


def finish(args: int, acc: int, stride: int, strip: int, n_strips: int, c: int, n: int) -> None:
    """Accumulators -> out, with bias and residual, columns c to c + n.

    Those of a column lie 64 bytes behind those of the one before, those of a strip `stride` bytes.
    A column's strips are written side by side: rows of the output lie pages apart.
    """
    whole = n_strips
    if v.ld_i64(args + N_ROWS) < (strip + n_strips) * 16:
        whole -= 1
        ragged(args, acc + whole * stride, strip + whole, c, n)
    ld, ldr = v.ld_i64(args + LD_OUT), v.ld_i64(args + LD_RESID)
    out = v.ld_i64(args + OUT) + strip * 64 + c * ld
    bias, resid = v.ld_i64(args + BIAS), v.ld_i64(args + RESID)
    if bias != 0:
        bias += strip * 64
    if resid != 0:
        resid += strip * 64 + c * ldr
    for _ in range(n):
        for s in range(whole):
            x = v.ld_f(acc + s * stride)
            if bias != 0:
                x = v.add(x, v.ld_f(bias + s * 64))
            if resid != 0:
                x = v.add(x, v.ld_f(resid + s * 64))
            v.st_f(out + s * 64, x)
        acc += 64
        out += ld
        resid += ldr


def ragged(args: int, acc: int, strip: int, c: int, n: int) -> None:
    """`finish` of a last strip that has less than 16 rows."""
    rows = v.ld_i64(args + N_ROWS) - strip * 16
    ld, ldr = v.ld_i64(args + LD_OUT), v.ld_i64(args + LD_RESID)
    out = v.ld_i64(args + OUT) + strip * 64 + c * ld
    bias, resid = v.ld_i64(args + BIAS), v.ld_i64(args + RESID)
    for k in range(n):
        x = v.ld_f(acc + 64 * k)
        if bias != 0:
            x = v.add(x, v.ld_f_tail(bias + strip * 64, rows))
        if resid != 0:
            x = v.add(x, v.ld_f_tail(resid + strip * 64 + (c + k) * ldr, rows))
        v.st_f_tail(out, x, rows)
        out += ld


def prefetch_step(v: Words, p: Addr, size: int, step: int, steps: int = 8) -> None:
    """Ask for a part of the lines that lie ahead of `size` bytes that are read in `steps` steps.

    Spread over the steps, so that there is never a burst; nothing is left out where `size` is no
    whole number of lines.
    """
    lines = -(-size // 64)
    for i in range(lines):
        if i * steps // lines == step:
            v.prefetch(p + (FAR + 64 * i), level=2)
            v.prefetch(p + (NEAR + 64 * i))


def sums_of(t: Type) -> int:
    """Which sums of a plane centre this type: offset of the table."""
    return SUM16 if t.group == 16 else SUM32


def group_values(
    v: Words,
    t: Type,
    act: Act,
    planes: Sequence[Plane],
    n_strips: int,
    a: Addr,
    g: int,
    n_columns: int,
    scales: Scales | None,
    starts: Addr | None = None,
) -> list[list[F]]:
    """f32(i) of group g of the block at `a` for each strip and column.

    planes: of the codes; their sums are added. a16 as 128 times the high plane of activations plus
    the low one. scales: as `v.group_values` (a8) or `v.group_dots` (a16) takes them, with one plane.
    starts: 64 bytes of a plane of a column, by `v.starts`.
    """
    of_group = g * 8 if t.group == 16 else g * 4
    columns = []
    for c in range(n_columns):
        block = a + c * act.size
        for p in range(act.planes):
            if starts is None:
                at = block + (act.sums(p) + sums_of(t) + of_group)
            else:
                at = starts + ((c * act.planes + p) * 64 + of_group)
            columns.append((block + (g * 32 + 256 * p), at))
    ready = starts is not None
    if act.planes == 1 and len(planes) == 1:
        code, codes, _ = planes[0]
        return v.group_values(code, n_strips, columns, codes, scales, ready)
    out: list[list[W]] = []
    for code, codes, weight in planes:
        by = scales if weight == 1 else _constant(v.splat_s(weight))
        new = v.group_dots(code, n_strips, columns, codes, by, ready)
        out = [added(v, *rows) for rows in zip(out, new, strict=True)] if out else new
    if act.planes == 2:
        high = [[v.shl_w(x, 7) for x in row[::2]] for row in out]
        out = [added(v, h, row[1::2]) for h, row in zip(high, out, strict=True)]
    return [[v.cvt(i) for i in row] for row in out]


def added(v: Words, x: list[W], y: list[W]) -> list[W]:
    """x + y, one by one."""
    return [v.add_w(a, b) for a, b in zip(x, y, strict=True)]


def _constant(x: S) -> Scales:
    return lambda s, j: x
