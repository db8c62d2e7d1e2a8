"""Run with an instruction set: every body, each array ending where the next page must not be touched.

A process of its own, since a read beyond an end is a segmentation fault.
"""

import ctypes
import mmap
import sys

import conftest
import numpy as np

from quant import activations, checks, decoding_kernels, gemm, jit
from quant.calls import address, decode_args, quantize_row, run_all
from quant.link import callable_at
from quant.types import TYPES

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
keep = []


def guarded(data):
    """A copy of an array whose last byte is the last of a page before one without any access."""
    room = -(-data.nbytes // PAGE) * PAGE
    area = np.frombuffer(mmap.mmap(-1, room + PAGE), np.uint8)
    keep.append(area)
    if libc.mprotect(ctypes.c_void_p(address(area) + room), PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    out = area[room - data.nbytes : room].view(data.dtype).reshape(data.shape)
    out[:] = data
    return out


def run_body(kernel, problem, isa, n):
    ready = checks.prepare(problem, isa, n)
    rows = len(problem.blocks)
    ones = np.ones((n, rows), np.float32)
    arrays = {
        gemm.WEIGHTS: guarded(ready.weights),
        gemm.ACTS_AT: guarded(ready.acts),
        gemm.OUT: guarded(ones),
        gemm.BIAS: guarded(ones[0]),
        gemm.RESID: guarded(ones),
        gemm.SCRATCH: guarded(ready.scratch),
    }
    for slot, array in arrays.items():
        ready.args[slot // 8] = address(array)
    ready.args[gemm.LD_OUT // 8] = ready.args[gemm.LD_RESID // 8] = rows * 4
    run_all(kernel, ready.args, ready.sizes.tasks, thread=1)
    want = problem.expected[:n] + ones[0] + ones
    return checks.differences(arrays[gemm.OUT], want)


def main(isa):
    quantize = {fmt: activations.quantize.spec(fmt) for fmt in ("a8", "a16")}
    bodies = [
        (t, fmt, spec)
        for t in TYPES.values()
        for fmt in conftest.formats_of(t, isa)
        for spec in conftest.bodies_of(t, fmt)
    ]
    decode = {t: decoding_kernels.decode_row.spec(t.name) for t in TYPES.values()}
    every = [*quantize.values(), *decode.values(), *(spec for _, _, spec in bodies)]
    found = jit.load(every, isa=isa)
    for t, fmt, spec in bodies:
        for n in (1, 7):
            problem = checks.problem(t, fmt, ("random", "random"), 21, n)
            wrong = run_body(callable_at(found[spec]), problem, isa, n)
            if wrong:
                raise SystemExit(f"{spec.symbol}: {wrong}")
    for fmt, spec in quantize.items():
        x = guarded(checks.activations(np.random.default_rng(0), "random", 3, 544))
        blocks = guarded(np.zeros(3 * 3 * checks.ACTS[fmt].size, np.uint8))
        run_all(callable_at(found[spec]), quantize_row(x, blocks), 3)
    for t, spec in decode.items():
        rows = checks.problem(t, "", ("random", "random"), 2, 1).blocks
        source = guarded(rows.reshape(2, -1))
        out = guarded(np.zeros((1, rows.shape[1] * t.values), np.float32))
        args = decode_args(np.array([1], np.int32), source, out, t, 1.0)
        run_all(callable_at(found[spec]), args, 1)


if __name__ == "__main__":
    main(sys.argv[1])
