"""What this machine can do at most, measured now: bytes read and multiply-adds per second.

The figures that shares of a limit are computed from. Reading is a plain pass over memory by the
pool's threads. Multiply-adds are counted in registers: "dot", the instruction set's own dot product
of activations and codes of few bits; "dot8", the same with signed codes of 8 bits, which cost more
where the product of two bytes does not fit; "fma", float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quant import cpu, jit
from quant.jit import kernel
from quant.memory import allocate
from quant.pool import Pool, Row
from quant.simd import macro, v
from quant.simd.layout import Codes
from quant.simd.values import A, Addr, B, F, W

if TYPE_CHECKING:
    from quant.compile import KernelFn
    from quant.simd.words import Words

CHUNK = 1 << 20  # bytes of a task of the reading pass
LOOPS = 20_000  # of a task in registers
# Values that accumulate side by side: enough to hide the latency, few enough to stay in registers.
CHAINS = {"avx512vnni": 16, "avxvnni": 6, "avx2": 6, "neondot": 4}
LEAST_CHAINS = 4  # on other instruction sets
PASSES = 5  # of which the best counts
LEAST_BYTES = 1 << 30  # of a reading pass, where there is memory for it
SHARE = 8  # of the memory that is to be had, at most one part is taken


@kernel
def read_pass() -> KernelFn:
    """args: address, out. Task: the task-th megabyte. Sums what it reads, so that it is read."""

    @macro
    def kilobyte(v: Words, a: Addr, s0: W, s1: W) -> tuple[W, W]:
        for k in range(0, 1024, 128):
            v.prefetch(a + (4096 + k))
            s0, s1 = v.add_w(s0, v.ld_w(a + k)), v.add_w(s1, v.ld_w(a + (64 + k)))
            v.prefetch(a + (4160 + k))
        return s0, s1

    def read_pass(args: int, task: int, thread: int) -> None:
        a = v.ld_i64(args) + task * CHUNK
        s0, s1 = v.zero_w(), v.zero_w()
        for k in range(0, CHUNK, 1024):
            s0, s1 = kilobyte(a + k, s0, s1)
        v.st_w(v.ld_i64(args + 8) + thread * 64, v.add_w(s0, s1))

    return read_pass


@kernel
def register_peak(kind: str) -> KernelFn:
    """kind "dot", "dot8": 4 products of bytes a lane; "fma": one float32. args: out."""
    codes = Codes(8, 0, True, 32) if kind == "dot8" else Codes(4, 0, False, 32)

    @macro
    def dots(v: Words, acc: tuple[A, ...], x: W) -> tuple[A, ...]:
        u, out = v.bits_b(v.bytes_of_w(x), 0, 15), []
        # Codes as a panel keeps them: of 8-bit ones two planes on AVX2, else one.
        parts = v.halves(v.bytes_of_w(x) if kind == "dot8" else u, codes)
        for a in acc:
            # Activations LLVM cannot know: else AVX2's products, the same each time, leave the loop.
            if v.asm_register:
                b = B([v.keep(r) for r in u.regs])
            else:
                b = v.or_b(u, v.bytes_of_w(W(a.regs)))
            for (plane, _), y in zip(v.planes_of(codes), parts, strict=True):
                a = v.dot(a, y, b, plane)
            out.append(a)
        return tuple(out)

    @macro
    def starts(v: Words) -> tuple[A, ...]:
        return tuple(A([v.const("A", 0)] * v.P) for _ in range(CHAINS.get(v.isa, LEAST_CHAINS)))

    @macro
    def total(v: Words, acc: tuple[A, ...]) -> W:
        out = v.zero_w()
        for a in acc:
            out = v.add_w(out, v.acc_w(a, None, v.planes_of(codes)[0][0]))
        return out

    @macro
    def fmas(v: Words, acc: tuple[F, ...], x: F) -> tuple[F, ...]:
        return tuple(F([v.keep(r) for r in v.fma(x, x, a).regs]) for a in acc)

    @macro
    def zeros(v: Words) -> tuple[F, ...]:
        return tuple(v.zero_f() for _ in range(CHAINS.get(v.isa, LEAST_CHAINS)))

    @macro
    def sum_f(v: Words, acc: tuple[F, ...]) -> F:
        out = v.zero_f()
        for a in acc:
            out = v.add(out, a)
        return out

    def dot_peak(args: int, task: int, thread: int) -> None:
        out = v.ld_i64(args) + thread * 64
        x, acc = v.ld_w(out), starts()
        for _ in range(LOOPS):
            acc = dots(acc, x)
        v.st_w(out, total(acc))

    def fma_peak(args: int, task: int, thread: int) -> None:
        out = v.ld_i64(args) + thread * 64
        x, acc = v.ld_f(out), zeros()
        for _ in range(LOOPS):
            acc = fmas(acc, x)
        v.st_f(out, sum_f(acc))

    return fma_peak if kind == "fma" else dot_peak


PEAKS = {"dot": 64, "dot8": 64, "fma": 16}  # multiply-adds of one 16-lane value
SPECS = (read_pass.spec(), *(register_peak.spec(kind) for kind in PEAKS))


def reading_bytes() -> int:
    """Bytes of a reading pass that no cache holds: 1 GB or four caches, as far as memory allows."""
    largest = max((c.size_bytes for c in cpu.caches()), default=0)
    wanted = max(LEAST_BYTES, 4 * largest)
    return max(64 << 20, min(wanted, cpu.memory().available_bytes // SHARE))


class Roofs:
    """Measurements that can be repeated, between runs of something else.

    Args:
        pool: the threads that are measured.
        size: bytes that a reading pass walks over; `reading_bytes()` unless given.
    """

    def __init__(self, pool: Pool, size: int = 0) -> None:
        kernels = jit.load(SPECS)
        self._pool, self._size = pool, (size or reading_bytes()) // CHUNK * CHUNK
        self._memory = allocate(self._size + 8192, huge=True)
        self._memory[::4096] = 1  # touched, else all of it is one page of zeros
        self._out = np.zeros(16 * pool.threads * 4, np.int32)
        self._args = np.array([self._memory.ctypes.data, self._out.ctypes.data], np.int64)
        self._reads = pool.tape(
            [Row(kernels[SPECS[0]], int(self._args.ctypes.data), self._size // CHUNK)]
        )
        peak = int(self._args.ctypes.data) + 8
        self._peaks = {
            kind: pool.tape([Row(kernels[s], peak, 4 * pool.threads, 1)])
            for kind, s in zip(PEAKS, SPECS[1:], strict=True)
        }
        self._isa = kernels.isa

    def bandwidth(self) -> float:
        """Bytes per second, best of five passes."""
        best = min(_seconds(self._reads.run) for _ in range(PASSES))
        return self._size / best

    def peak(self, kind: str) -> float:
        """Multiply-adds per second of one of `PEAKS`, best of five."""
        best = min(_seconds(self._peaks[kind].run) for _ in range(PASSES))
        values = 4 * self._pool.threads * LOOPS * CHAINS.get(self._isa, LEAST_CHAINS)
        return values * PEAKS[kind] / best


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per second of memory, and multiply-adds per second by kind of `PEAKS`."""

    read: float
    peaks: Mapping[str, float]


def measure(pool: Pool) -> Limits:
    """The limits of a pool's threads, now."""
    return limits(Roofs(pool))


def limits(roofs: Roofs) -> Limits:
    """All of them, measured once more."""
    return Limits(roofs.bandwidth(), {kind: roofs.peak(kind) for kind in PEAKS})


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
