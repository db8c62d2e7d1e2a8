"""Kernels of the matmul against `quant.reference`: what a fresh object must pass to be published.

Each `check_*` is called as `check(run, isa, *params of the factory)` and returns what is wrong, or
None. Bits must be equal; of a NaN only that it is one. The tests run many more of the same cases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quant import gemm, reference
from quant.calls import (
    FORMATS,
    I64,
    Run,
    Sizes,
    act_bytes,
    address,
    aligned,
    decode_args,
    quantize_row,
    run_all,
)
from quant.formats.layout import F32, U8
from quant.simd.layout import ACTS
from quant.types import Type, get

PRECISIONS = {fmt: precision for precision, fmt in FORMATS.items()}
POISON = 0x5A
# Weights and activations that are hard on the arithmetic; `weights` and `activations` explain.
PAIRS = (
    ("random", "random"),
    ("max", "max"),
    ("min", "max"),
    ("max", "random"),
    ("zero", "zero"),
    ("negzero", "random"),
    ("subnormal", "random"),
    ("subnormal", "edge"),
    ("random", "tiny"),
    ("random", "edge"),
    ("negative", "wide"),
    ("random", "wide"),
    ("random", "huge"),
    ("huge", "huge"),
    ("random", "special"),
)
# Two register tiles and a rest of columns on every instruction set; a ragged last strip.
_COLUMNS, _ROWS = 13, 37
_QUICK = (PAIRS[0], PAIRS[1], PAIRS[7], PAIRS[14])


class Problem(NamedTuple):
    """A matmul to do: (rows, n_blocks, bytes) weights, (n, k) activations in format fmt."""

    t: Type
    fmt: str
    blocks: U8
    x: F32

    @property
    def expected(self) -> F32:
        """(n, rows) by the reference."""
        precision = PRECISIONS.get(self.fmt, "int8")
        return reference.matmul_bits(self.t, self.blocks, self.x, precision)


def problem(
    t: Type, fmt: str, pair: tuple[str, str], rows: int, n: int, k: int | None = None
) -> Problem:
    """A problem with an odd k: a tail of one group behind whole blocks, or of three values."""
    rng = np.random.default_rng([rows, n, t.id])
    k = k or {"small": 544, "super": 512, "float": 103}[t.kind]
    return Problem(t, fmt, weights(t, rng, pair[0], rows, k), activations(rng, pair[1], n, k))


def weights(t: Type, rng: np.random.Generator, mode: str, rows: int, k: int) -> U8:
    """(rows, n_blocks, bytes).

    random · max, min: extreme codes, for 6 bits under sub-scales of -128 · zero, negzero: half or
    all scales · subnormal, negative, huge scales
    """
    n_scales = 2 if t.minimum else 1
    d: NDArray[np.float64] = rng.standard_normal((rows, k // t.values, n_scales)) * 0.01
    if mode in ("max", "min"):
        d = np.abs(d) + 0.5
    elif mode == "zero":
        d[rng.random(d.shape) < 0.5] = 0
    elif mode == "negzero":
        d = np.where(rng.random(d.shape) < 0.5, -0.0, 0.0)
    elif mode == "subnormal":
        d = rng.integers(-1023, 1024, d.shape).astype(np.float64) * 2.0**-24
    elif mode == "negative":
        d = -np.abs(d)
    elif mode == "huge":
        d = rng.choice([65504.0, -65504.0], d.shape)
    if t.kind == "float":
        return t.format.encode(d[..., 0].astype(np.float32))
    b = rng.integers(0, 256, (rows, k // t.values, t.bytes), dtype=np.uint8)
    if mode in ("max", "min"):
        b[:] = (127 if mode == "max" else 128) if t.signed else (255 if mode == "max" else 0)
    at = t.bytes - 2 if t.group == 16 else 0
    if mode in ("max", "min") and t.group == 16:
        b[..., at - 16 : at] = 128
    b[..., at : at + 2 * n_scales] = d.astype("<f2").view(np.uint8)
    return b


def activations(rng: np.random.Generator, mode: str, n: int, k: int) -> F32:
    """(n, k) float32.

    random · max: all codes at the limit · zero: half the groups · tiny: subnormal groups · edge:
    scales around the smallest normal number · huge: up to overflow · wide: 80 binades · special:
    infinity and NaN in some columns
    """
    x = rng.standard_normal((n, k)).astype(np.float32)
    if mode == "max":
        x[:] = np.where(np.arange(n)[:, None] % 2, 3, -3)
    elif mode == "zero":
        x[(rng.random((n, -(-k // 32))) < 0.5).repeat(32, 1)[:, :k]] = 0
    elif mode == "special":
        x[0, k // 2], x[n // 2, 1], x[n - 1, k - 1] = np.inf, -np.inf, np.nan
    powers = {"tiny": -130, "edge": -118, "huge": 124}
    with np.errstate(over="ignore"):
        if mode in powers:
            x *= np.float32(2.0 ** powers[mode])
        elif mode == "wide":
            x *= np.exp2(rng.integers(-40, 40, (n, k))).astype(np.float32)
    return x


def act_blocks(x: F32, fmt: str, isa: str, fill: int = 0) -> U8:
    """(n, k) -> what the quantizer writes for this instruction set; other bytes are `fill`.

    `quant.simd.layout` has the layout.
    """
    act = ACTS[fmt]
    (n, k), p = x.shape, act.planes
    a = reference.quantize_activations(x, act.limit)
    high = a.codes + 64 >> 7
    planes = [a.codes] if p == 1 else [high, a.codes - (high << 7)]
    sums = np.dtype([("per16", "V8", 8), ("per32", "<i4", 8)])
    block = np.dtype([("q", "i1", (p, 8, 32)), ("dx", "<f4", 8), ("xs", "<f4", 8), ("s", sums, p)])
    assert block.itemsize == act.size
    out = aligned(act_bytes(n, k, fmt))
    out[:] = fill
    blocks: NDArray[Any] = out[: -(-k // 256) * n * act.size].view(block).reshape(-1, n)
    for g in range(k // 32):
        to, j = blocks[g // 8], g % 8
        to["dx"][:, j], to["xs"][:, j] = a.dx[:, g], a.xs[:, g]
        for i, codes in enumerate(planes):
            q = codes[:, 32 * g : 32 * g + 32]
            to["q"][:, i, j] = q
            to["s"]["per16"][:, i, j] = _sums16(q, isa)
            to["s"]["per32"][:, i, j] = _sums32(q, isa)
    return out


def _sums16(q: NDArray[np.int32], isa: str) -> NDArray[Any]:
    """(n, 32) codes -> (n,) of 8 bytes: two int32, on AVX2 four int16 (k % 4 < 2, the others)."""
    if isa == "avx2":
        pairs = q.reshape(-1, 2, 4, 2, 2).sum((2, 4)).astype("<i2")
    else:
        pairs = q.reshape(-1, 2, 16).sum(2).astype("<i4")
    words: NDArray[Any] = np.ascontiguousarray(pairs).reshape(len(q), -1).view("V8")[:, 0]
    return words


def _sums32(q: NDArray[np.int32], isa: str) -> NDArray[Any]:
    """(n, 32) codes -> (n,) int32, on AVX2 two int16 in their bits."""
    if isa == "avx2":
        pairs = q.reshape(-1, 8, 2, 2).sum((1, 3)).astype("<i2")
        words: NDArray[np.int32] = np.ascontiguousarray(pairs).view("<i4")[:, 0]
        return words
    both: NDArray[np.int32] = q.sum(1, dtype=np.int32)
    return both


class Prepared(NamedTuple):
    """A row of arguments with everything it points to, ready to run."""

    sizes: Sizes
    args: I64
    out: F32  # (n, rows + 3), poison in the last three
    scratch: U8  # of two threads, poison
    weights: U8
    acts: U8

    def run(self, run: Run, thread: int = 1) -> F32:
        """(n, rows) as computed by the kernel."""
        run_all(run, self.args, self.sizes.tasks, thread)
        return self.out[:, : self.sizes.rows]

    def stray(self, thread: int = 1) -> str | None:
        """What was written that is not this thread's to write."""
        size = self.sizes.scratch_bytes
        scratch = self.scratch.reshape(-1, size)
        if (np.delete(scratch, thread, 0) != POISON).any():
            return "wrote into the scratch of another thread"
        if (self.out[:, self.sizes.rows :].view(np.uint8) != POISON).any():
            return "wrote beside its rows"
        return None


def prepare(p: Problem, isa: str, n: int | None = None, tile: int = 2) -> Prepared:
    """The first n columns of a problem, packed, quantized and laid out."""
    x = p.x if n is None else p.x[:n]
    n, k = x.shape
    sizes = Sizes(p.t, n, k, len(p.blocks), tile)
    packed = aligned(sizes.n_strips * sizes.strip_bytes)
    packed[:] = p.t.format.pack(p.blocks).reshape(-1)
    if p.t.kind == "float":
        acts = aligned((n + gemm.SLACK) * k * 4)
        acts.view(np.float32)[: n * k] = x.reshape(-1)
    else:
        acts = act_blocks(x, p.fmt, isa)
    out = np.full((n, sizes.rows + 3), POISON * 0x01010101, np.uint32).view(np.float32)
    scratch = aligned(2 * sizes.scratch_bytes)
    scratch[:] = POISON
    args = sizes.row(address(packed), address(acts), address(out), out.strides[0], address(scratch))
    return Prepared(sizes, args, out, scratch, packed, acts)


def differences(got: F32, expected: F32) -> str | None:
    """Where two arrays differ in bits, NaN equal to NaN; None if nowhere."""
    wrong = got.view(np.uint32) != expected.view(np.uint32)
    wrong &= ~(np.isnan(got) & np.isnan(expected))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} differ, first {at}: {got[at]!r}, not {expected[at]!r}"
    )


def _check(run: Run, isa: str, t: Type, fmt: str, columns: tuple[int, ...]) -> str | None:
    for pair in _QUICK:
        p = problem(t, fmt, pair, _ROWS, max(columns))
        expected = p.expected
        for n in columns:
            ready = prepare(p, isa, n)
            wrong = differences(ready.run(run), expected[:n]) or ready.stray()
            if wrong:
                return f"weights {pair[0]}, activations {pair[1]}, {n} columns: {wrong}"
    return None


def check_stream(run: Run, isa: str, qtype: str, fmt: str, columns: str) -> str | None:
    """`quant.gemm_stream.stream`."""
    return _check(run, isa, get(qtype), fmt, (1,) if columns == "one" else (2, 3, 5, 13))


def check_panel(run: Run, isa: str, qtype: str, fmt: str) -> str | None:
    """`quant.gemm_panel.panel`."""
    return _check(run, isa, get(qtype), fmt, (_COLUMNS,))


def check_floats(run: Run, isa: str, qtype: str, shape: str) -> str | None:
    """`quant.gemm_float.floats`."""
    return _check(run, isa, get(qtype), "", (2,) if shape == "one" else (_COLUMNS,))


def check_quantize(run: Run, isa: str, fmt: str) -> str | None:
    """`quant.activations.quantize`: every byte of the blocks."""
    rng = np.random.default_rng(0)
    for mode in dict.fromkeys(pair[1] for pair in PAIRS):
        x = activations(rng, mode, 5, 544)
        expected = act_blocks(x, fmt, isa, POISON)
        got = np.full_like(expected, POISON)
        run_all(run, quantize_row(x, got), len(x))
        wrong = canonical(got, fmt) != canonical(expected, fmt)
        if wrong.any():
            return f"activations {mode}: {int(wrong.sum())} bytes differ, first {wrong.argmax()}"
    return None


def canonical(blocks: U8, fmt: str) -> U8:
    """Activation blocks with every NaN among dx and xs made the same."""
    act = ACTS[fmt]
    out = blocks.copy()
    tables = out[: len(out) // act.size * act.size].reshape(-1, act.size)[:, act.dx : act.dx + 64]
    scales = np.ascontiguousarray(tables).view(np.float32)
    scales[np.isnan(scales)] = np.nan
    tables[:] = scales.view(np.uint8)
    return out


def check_pack(run: Run, isa: str, qtype: str) -> str | None:
    """`quant.packing_kernels.pack_strip`: every byte, and none beside them."""
    t = get(qtype)
    k = {"small": 96, "super": 512, "float": 43}[t.kind]
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (48, k // t.values, t.bytes), dtype=np.uint8)
    out = np.full((4, blocks.nbytes // 3), POISON, np.uint8)
    row = np.array([address(blocks), t.row_bytes(k), address(out), k // t.values], np.int64)
    run_all(run, row, 3)
    wrong = out[:3] != t.format.pack(blocks).reshape(3, -1)
    if wrong.any():
        return (
            f"{int(wrong.sum())} of {wrong.size} bytes differ, first {wrong.reshape(-1).argmax()}"
        )
    return "wrote beyond its strip" if (out[3] != POISON).any() else None


def check_decode(run: Run, isa: str, qtype: str) -> str | None:
    """`quant.decoding_kernels.decode_row`: bits of every value, hard scales among them."""
    t = get(qtype)
    k = {"small": 96, "super": 512, "float": 43}[t.kind]
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (7, k // t.values, t.bytes), dtype=np.uint8)
    rows = np.array([6, 0, 3, 3, 5], np.int32)
    for factor in (1.0, 22.627416):
        with np.errstate(invalid="ignore", over="ignore"):
            expected = t.format.decode(blocks)[rows] * np.float32(factor)
        out = np.full((len(rows), k + 3), POISON * 0x01010101, np.uint32).view(np.float32)
        args = decode_args(rows, blocks.reshape(7, -1), out[:, :k], t, factor)
        run_all(run, args, len(rows))
        wrong = differences(out[:, :k], expected)
        if wrong:
            return f"factor {factor}: {wrong}"
        if (out[:, k:].view(np.uint8) != POISON).any():
            return "wrote beside its rows"
    return None
