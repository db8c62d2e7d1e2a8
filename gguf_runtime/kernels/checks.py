"""Small cases of every kernel against its `bits`: run before an object is published, and by the tests.

A check takes the kernel, (args, task, thread), and the parameters of its factory; it returns "" or what
is wrong. Outputs lie between poisoned borders, and memory that nobody wrote holds NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.cache import pages
from gguf_runtime.kernels import act, norm, rope
from gguf_runtime.kernels.slots import row
from quant.reference import LIMITS, quantize_activations
from quant.simd.layout import ACTS

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Run = Callable[[int, int, int], None]

BORDER = 128  # bytes of poison on either side
POISON = 0xFF  # bytes of NaN in every float format


class Guarded:
    """An array between poisoned borders, itself poisoned."""

    def __init__(self, *shape: int, dtype: Any = np.float32) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._all = np.full(size + 2 * BORDER, POISON, np.uint8)
        self.array: NDArray[Any] = self._all[BORDER : BORDER + size].view(dtype).reshape(shape)

    def intact(self) -> bool:
        """Nothing was written outside of the array."""
        return bool(np.all(self._all[:BORDER] == POISON) and np.all(self._all[-BORDER:] == POISON))

    def holding(self, x: NDArray[Any]) -> Guarded:
        """The same with values."""
        self.array[...] = x
        return self


def guarded(x: NDArray[Any]) -> Guarded:
    """A copy of x between borders."""
    return Guarded(*x.shape, dtype=x.dtype).holding(x)


def same_bits(a: F32, b: F32) -> bool:
    """Equal bit for bit, any NaN equal to any other."""
    nan = np.isnan(a)
    if not np.array_equal(nan, np.isnan(b)):
        return False
    return np.array_equal(a[~nan].view(np.int32), np.asarray(b, np.float32)[~nan].view(np.int32))


def run_all(run: Run, args: I64, tasks: int) -> None:
    """Every task, as thread 0."""
    for task in range(tasks):
        run(args.ctypes.data, task, 0)


def spread(rng: np.random.Generator, *shape: int) -> F32:
    """Values of many magnitudes."""
    return (rng.normal(0, 1, shape) * np.exp2(rng.integers(-6, 6, shape))).astype(np.float32)


# ---- activation blocks -------------------------------------------------------------------------


def act_buffer(tokens: int, n: int, fmt: str) -> Guarded:
    """Blocks of n values for `tokens` columns, [k block][column]."""
    return Guarded(-(-n // 256), tokens, ACTS[fmt].size, dtype=np.uint8)


def act_complaint(blocks: U8, x: F32, fmt: str) -> str:
    """Codes, dx and xs of blocks against the quantizer's reference."""
    a = ACTS[fmt]
    want = quantize_activations(x, LIMITS["int8" if fmt == "a8" else "int16"])
    n_groups = x.shape[1] // 32

    def planes(k: int) -> NDArray[np.int32]:
        raw = blocks[..., 256 * k : 256 * (k + 1)].view(np.int8).astype(np.int32)
        return raw.transpose(1, 0, 2).reshape(len(x), -1)[:, : x.shape[1]]

    def table(at: int) -> F32:
        raw = np.ascontiguousarray(blocks[..., at : at + 32]).view(np.float32)
        return raw.transpose(1, 0, 2).reshape(len(x), -1)[:, :n_groups]

    codes = planes(0) if a.planes == 1 else 128 * planes(0) + planes(1)
    if not np.array_equal(codes, want.codes):
        return "activation codes differ"
    if not (same_bits(table(a.dx), want.dx) and same_bits(table(a.xs), want.xs)):
        return "activation scales differ"
    return ""


# ---- norm, act ---------------------------------------------------------------------------------


def check_norm(run: Run, form: str, fmt: str) -> str:
    """Odd lengths, more than a chunk, rows in another order."""
    rng = np.random.default_rng(0)
    step = 1 if fmt == "f32" else 32
    for n in (8, 20, 576, 4096 + 52):
        n = -(-n // step) * step
        complaint = norm_case(run, form, fmt, spread(rng, 3, n), spread(rng, 3, n), rng)
        if complaint:
            return f"{complaint}, n = {n}"
    return ""


def norm_case(run: Run, form: str, fmt: str, x: F32, y: F32, rng: np.random.Generator) -> str:
    """One call on (3, n) arrays."""
    n = x.shape[1]
    w, y_w = rng.normal(1, 0.2, (2, n)).astype(np.float32)
    rows = np.array([2, 0], np.int32)
    post = form == "post"
    given = [guarded(a) for a in (x, y, w, y_w)]
    x_out, out = guarded(x), Guarded(2, n)
    blocks = act_buffer(2, n, "a8" if fmt == "f32" else fmt)
    args = row(
        norm.ARGS, x=given[0].array, x_stride=4 * n, y=given[1].array, y_stride=4 * n,
        y_w=given[3].array, x_out=x_out.array, w=given[2].array, out=out.array, out_stride=4 * n,
        act=blocks.array, act_block=2 * blocks.array.shape[2], act_column=blocks.array.shape[2],
        rows=rows, n=n, eps=1e-5,
    )  # fmt: skip
    run_all(run, args, 2)
    more = (y[rows], y_w) if post else (None, None)
    want = norm.bits(x[rows], w, 1e-5, *more)
    if post and not same_bits(x_out.array[rows], norm.residual_bits(x[rows], y[rows], y_w, 1e-5)):
        return "x_out differs"
    if not same_bits(x_out.array[1], x[1]):
        return "a row that was not asked for was written"
    if not all(g.intact() for g in (*given, x_out, out, blocks)):
        return "wrote past a buffer"
    if not same_bits(out.array, want):
        return "out differs"
    return "" if fmt == "f32" else act_complaint(blocks.array, want, fmt)


def check_act(run: Run, function: str, fmt: str) -> str:
    """Odd lengths and values up to overflow."""
    rng = np.random.default_rng(1)
    step = 1 if fmt == "f32" else 32
    for n in (8, 50, 576):
        n = -(-n // step) * step
        gate, up = spread(rng, 2, n), spread(rng, 2, n)
        gate[1, :6] = [0.0, -0.0, 88.0, -200.0, 1e30, -1e30]
        out, blocks = Guarded(2, n), act_buffer(2, n, "a8" if fmt == "f32" else fmt)
        args = row(
            act.ARGS, gate=gate, gate_stride=4 * n, up=up, up_stride=4 * n, out=out.array,
            out_stride=4 * n, act=blocks.array, act_block=2 * blocks.array.shape[2],
            act_column=blocks.array.shape[2], n=n,
        )  # fmt: skip
        run_all(run, args, 2)
        want = act.bits(function, gate, up)
        if not (same_bits(out.array, want) and out.intact() and blocks.intact()):
            return f"out differs, n = {n}"
        if fmt != "f32" and (complaint := act_complaint(blocks.array, want, fmt)):
            return f"{complaint}, n = {n}"
    return ""


# ---- cache -------------------------------------------------------------------------------------


class Cache:
    """One sequence (number 1) over pages in memory, at layer offset `layer_bytes`."""

    def __init__(self, layout: pages.Layout, positions: int) -> None:
        self.layout = layout
        n = -(-positions // pages.POSITIONS)
        self.pages = [Guarded(2 * layout.layer_bytes, dtype=np.uint8) for _ in range(n)]
        self.table = np.array([p.array.ctypes.data for p in self.pages], np.int64)
        self.tables = np.array([0, self.table.ctypes.data], np.int64)

    def write(self, position: int, k: F32, v: F32) -> None:
        """Store one position with the numpy helper."""
        page = self.pages[position // pages.POSITIONS].array[self.layout.layer_bytes :]
        pages.write(self.layout, page, position % pages.POSITIONS, k, v)

    def slots(self) -> dict[str, NDArray[Any] | int]:
        """The arguments that describe it."""
        x = self.layout
        return {
            "tables": self.tables,
            "layer_offset": x.layer_bytes,
            "head_bytes": x.head_bytes,
            "key_bytes": x.key_bytes,
            "key_dim": x.key_dim,
            "value_dim": x.value_dim,
        }

    def equals(self, other: Cache) -> bool:
        """The same bytes everywhere, borders included."""
        both = zip(self.pages, other.pages, strict=True)
        return all(np.array_equal(a.array, b.array) and a.intact() for a, b in both)


ROPE_SHAPES = ((64, 64, 64), (32, 32, 20), (8, 8, 8), (20, 40, 12), (80, 80, 80), (64, 96, 0))


def check_rope(run: Run, kind: str, cache: str) -> str:
    """Head sizes with tails, partial rotation, with and without norms, a value out of range."""
    rng = np.random.default_rng(2)
    for dim, value_dim, n_rot in ROPE_SHAPES:
        if cache == "q8_0" and (dim % 32 or value_dim % 32):
            continue
        for normed in (False, True):
            layout = pages.Layout(cache, dim, value_dim, 2)
            complaint = rope_case(run, kind, layout, n_rot, normed, rng)
            if complaint:
                return f"{complaint}: dim {dim}, {value_dim}, n_rot {n_rot}, norms {normed}"
    return ""


def rope_case(
    run: Run, kind: str, layout: pages.Layout, n_rot: int, normed: bool, rng: np.random.Generator
) -> str:
    """Five tokens, the last with a value that no cache but f32 holds."""
    dim, value_dim, tokens = layout.key_dim, layout.value_dim, 5
    q, k = spread(rng, tokens, 3, dim), spread(rng, tokens, 2, dim)
    x = spread(rng, tokens, 2, value_dim)
    x[-1, -1, -1] = 1e8
    pos = np.array([3, 64, 70, 127, 0], np.int32)
    angle = rng.normal(0, 3, (128, n_rot // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    w = rng.normal(1, 0.2, (2, dim)).astype(np.float32)
    norms = {"q_norm": w[0], "k_norm": w[1]} if normed else {}
    flag, seq = np.zeros(1, np.int64), np.ones(tokens, np.int32)
    got, want = Cache(layout, 128), Cache(layout, 128)
    given = [guarded(a) for a in (q, k, x)]
    args = row(
        rope.ARGS, q=given[0].array, q_stride=12 * dim, k=given[1].array, k_stride=8 * dim,
        v=given[2].array, v_stride=8 * value_dim, n_head=3, n_head_kv=2, n_rot=n_rot, cos=cos,
        sin=sin, pos=pos, seq=seq, eps=1e-6, scale=0.37, flag=flag, **got.slots(), **norms,
    )  # fmt: skip
    tables = (cos[pos], sin[pos])
    q_want = rope.bits(kind, q, *tables, norms.get("q_norm"), 1e-6, 0.37)
    k_want = rope.bits(kind, k, *tables, norms.get("k_norm"), 1e-6)
    for t in range(tokens):
        want.write(int(pos[t]), k_want[t], x[t])
    run_all(run, args, tokens - 1)
    if flag[0] != 0:
        return "the flag is set for ordinary values"
    run(args.ctypes.data, tokens - 1, 0)
    if flag[0] != int(layout.kind != "f32"):
        return "the flag is wrong for a huge value"
    if not same_bits(given[0].array, q_want):
        return "q differs"
    if not got.equals(want):
        return "pages differ"
    return "" if all(g.intact() for g in given) else "wrote past a buffer"
