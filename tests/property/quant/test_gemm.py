"""The matmul's bodies: the reference's bits for every type, whatever the shape, tile and thread.

GGUF_RUNTIME_ALL_KERNELS=1 runs both activation formats of every type on every instruction set.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quant import checks, cpu, gemm
from quant.calls import address, run_all
from quant.types import TYPES

COLUMNS = (1, 2, 3, 5, 8, 13, 33)
every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
every_isa = pytest.mark.parametrize("isa", cpu.exact()[::-1])
quantized = pytest.mark.parametrize("name", ["Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K"])


class Problems:
    """Problems with their results: bodies share what takes longest, the reference."""

    def __init__(self):
        self.known = {}

    def __call__(self, t, fmt, pair=("random", "random"), rows=37, n=13, k=None):
        key = (t, fmt, pair, rows, n, k)
        if key not in self.known:
            p = checks.problem(*key)
            self.known[key] = p, p.expected
        return self.known[key]


@pytest.fixture(scope="module")
def problems():
    return Problems()


@every_isa
@every_type
def test_hard_weights_and_activations_give_the_bits_of_the_reference(isa, t, bodies, problems):
    for pair in checks.PAIRS:
        for fmt, name, kernel in bodies(isa, t):
            p, expected = problems(t, fmt, pair)
            ready = checks.prepare(p, isa)

            out = ready.run(kernel)

            assert not checks.differences(out, expected), f"{name} {pair}"
            assert not ready.stray(), f"{name} {pair}"


@every_isa
@every_type
def test_any_number_of_columns_gives_the_same_bits(isa, t, bodies, problems):
    for fmt, name, kernel in bodies(isa, t):
        p, expected = problems(t, fmt, rows=33, n=max(COLUMNS))
        for i, n in enumerate(COLUMNS):
            ready = checks.prepare(p, isa, n, tile=1 + i % 4)

            out = ready.run(kernel, thread=i % 2)

            assert not checks.differences(out, expected[:n]), f"{name} {n} columns"
            assert not ready.stray(thread=i % 2), f"{name} {n} columns"


@every_isa
@pytest.mark.parametrize("name", ["Q5_0", "Q6_K"])
def test_columns_that_are_taken_in_chunks_give_the_same_bits(isa, name, bodies, problems):
    t, most = TYPES[name], gemm.MOST_COLUMNS
    for fmt, body, kernel in bodies(isa, t):
        p, expected = problems(t, fmt, rows=33, n=2 * most + 1, k=256)
        for n in (most, most + 1, most + 7, 2 * most + 1):
            ready = checks.prepare(p, isa, n, tile=3)

            out = ready.run(kernel)

            assert not checks.differences(out, expected[:n]), f"{body} {n} columns"
            assert not ready.stray(), f"{body} {n} columns"


@every_isa
@every_type
@pytest.mark.parametrize("rows", [1, 16, 17, 47])
def test_a_last_strip_that_is_not_full_is_computed_and_no_more_is_written(
    isa, t, rows, bodies, problems
):
    for fmt, name, kernel in bodies(isa, t):
        p, expected = problems(t, fmt, rows=rows, n=5)
        ready = checks.prepare(p, isa)

        assert not checks.differences(ready.run(kernel), expected), name
        assert not ready.stray(), name


@every_isa
@every_type
def test_short_rows_and_rows_with_a_tail_give_the_same_bits(isa, t, bodies, problems):
    sizes = {"small": (32, 256, 288, 480), "super": (256, 768), "float": (1, 2, 3, 4, 64, 65)}
    for k in sizes[t.kind]:
        for fmt, name, kernel in bodies(isa, t):
            p, expected = problems(t, fmt, k=k, n=7)

            out = checks.prepare(p, isa).run(kernel)

            assert not checks.differences(out, expected), f"{name} k = {k}"


@every_isa
@every_type
def test_bias_then_residual_are_added_to_the_finished_sum(isa, t, bodies, problems):
    rng = np.random.default_rng(5)
    for fmt, name, kernel in bodies(isa, t):
        p, expected = problems(t, fmt)
        n, rows = expected.shape
        bias = rng.standard_normal(rows).astype(np.float32)
        resid = rng.standard_normal((n, rows + 2)).astype(np.float32)
        for use_bias, use_resid in ((True, False), (False, True), (True, True)):
            ready, want = checks.prepare(p, isa), expected
            if use_bias:
                ready.args[gemm.BIAS // 8] = address(bias)
                want = want + bias
            if use_resid:
                ready.args[gemm.RESID // 8] = address(resid)
                ready.args[gemm.LD_RESID // 8] = resid.strides[0]
                want = want + resid[:, :rows]

            assert not checks.differences(ready.run(kernel), want), name
            assert not ready.stray(), name


@every_isa
@every_type
def test_the_residual_may_stand_where_the_result_goes(isa, t, bodies, problems):
    for fmt, name, kernel in bodies(isa, t):
        p, expected = problems(t, fmt)
        ready = checks.prepare(p, isa)
        ready.args[gemm.RESID // 8] = ready.args[gemm.OUT // 8]
        ready.args[gemm.LD_RESID // 8] = ready.args[gemm.LD_OUT // 8]
        ready.out[:, :37] = np.linspace(-2, 2, 13 * 37, dtype=np.float32).reshape(13, 37)
        want = expected + ready.out[:, :37]

        assert not checks.differences(ready.run(kernel), want), name


@every_isa
@quantized
def test_a_task_writes_its_own_strips_only(isa, name, bodies, problems):
    t = TYPES[name]
    for fmt, body, kernel in bodies(isa, t):
        p, expected = problems(t, fmt, rows=70)
        ready = checks.prepare(p, isa, tile=2)

        kernel(address(ready.args), 1, 0)

        assert not checks.differences(ready.out[:, 32:64], expected[:, 32:64]), body
        ready.out[:, 32:64] = ready.out[0, -1]
        assert (ready.out.view(np.uint8) == checks.POISON).all(), body


@pytest.mark.skipif(sys.platform == "win32", reason="guard pages need mprotect")
@every_isa
def test_nothing_is_read_or_written_beyond_the_end_of_its_array(isa, kernels):
    kernels(isa)  # compiled and cached
    script = Path(__file__).with_name("guarded.py")

    done = subprocess.run(
        [sys.executable, script, isa], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, f"{done.stdout[-500:]}{done.stderr[-2000:]}"


@every_isa
@every_type
def test_the_check_before_publishing_finds_a_wrong_bit_and_a_stray_write(isa, t, kernels):
    spec, kernel = next(
        (s, k)
        for s, k in kernels(isa).items()
        if s.params[0] == t.name and not s.check.endswith("check_decode")
    )
    check = getattr(checks, spec.check.rsplit(".", 1)[1])
    out = {}

    def prepare(*args, **kwargs):
        out["last"] = original(*args, **kwargs)
        return out["last"]

    def wrong_bit(args, task, thread):
        kernel(args, task, thread)
        if task == 1:
            out["last"].out.view(np.uint32)[0, 36] ^= 1

    def stray(args, task, thread):
        kernel(args, task, thread)
        out["last"].out[0, -1] = 0

    original, checks.prepare = checks.prepare, prepare
    try:
        assert check(kernel, isa, *spec.params) is None
        assert "1 of" in check(wrong_bit, isa, *spec.params)
        assert "beside" in check(stray, isa, *spec.params)
    finally:
        checks.prepare = original


def test_running_all_tasks_needs_no_more_than_their_number():
    seen = []

    run_all(lambda *call: seen.append(call[1:]), np.zeros(1, np.int64), 3, thread=4)

    assert seen == [(0, 4), (1, 4), (2, 4)]
