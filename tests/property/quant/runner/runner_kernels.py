"""Kernels that keep books on what the runner does; loaded by test_pool.py."""

from quant.jit import kernel
from quant.simd import v


@kernel
def tally():
    """args: counter of the row before, its value when that row is done, own counter, out, errors, rounds."""

    def body(args: int, task: int, thread: int) -> None:
        if v.load_acq(v.ld_i64(args)) != v.ld_i64(args + 8):
            v.fetch_add(v.ld_i64(args + 32), 1)
        for _ in range(v.ld_i64(args + 40)):
            v.pause()
        v.fetch_add(v.ld_i64(args + 24) + 8 * task, 1)
        v.fetch_add(v.ld_i64(args + 16), 1)

    return body


@kernel
def note_thread():
    """args: out; out[task] = 1 + thread."""

    def body(args: int, task: int, thread: int) -> None:
        for _ in range(200):
            v.pause()
        v.st_i64(args + 8 * task, thread + 1)

    return body


@kernel
def read_state():
    """args: out; out[task] = MXCSR or FPCR."""

    def body(args: int, task: int, thread: int) -> None:
        v.st_i64(args + 8 * task, v.fp_state())

    return body


@kernel
def write_state():
    """args: the new MXCSR or FPCR of the calling thread."""

    def body(args: int, task: int, thread: int) -> None:
        v.set_fp_state(args)

    return body
