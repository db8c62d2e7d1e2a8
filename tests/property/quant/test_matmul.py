"""`quant.pack` and `quant.matmul`: the reference's bits for any shape, number of threads, precision."""

import subprocess
import sys

import numpy as np
import pytest

import quant
from quant import checks, cpu, reference
from quant.calls import address, run_all
from quant.jit import load
from quant.link import callable_at
from quant.packing_kernels import pack_strip
from quant.pool import Pool
from quant.types import TYPES

every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
every_isa = pytest.mark.parametrize("isa", cpu.exact()[::-1])
THREADS = sorted({1, min(2, len(cpu.cores().allowed))})


def rows_of(t, rows, k, seed=0):
    """(rows, bytes per row) random weights with ordinary scales."""
    rng = np.random.default_rng([seed, t.id])
    return checks.weights(t, rng, "random", rows, k).reshape(rows, -1)


def random_x(n, k, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)


@pytest.fixture(scope="module")
def pack_kernels():
    loaded = {}

    def of(isa):
        if isa not in loaded:
            specs = [pack_strip.spec(name) for name in TYPES]
            found = load(specs, isa=isa, fallback=False)
            loaded[isa] = {s.params[0]: callable_at(found[s]) for s in specs}
        return loaded[isa]

    return of


@every_isa
@every_type
def test_kernels_pack_every_bit_as_the_format_does(isa, t, pack_kernels):
    for n_blocks in (1, 2, 3, 7, 8, 17) if t.kind != "float" else (1, 3, 4, 7, 8, 31):
        rng = np.random.default_rng(n_blocks)
        wide = rng.integers(0, 256, (32, n_blocks + 1, t.bytes), dtype=np.uint8)
        rows = wide[:, :n_blocks]
        out = np.full((3, n_blocks * 16 * t.bytes), checks.POISON, np.uint8)
        args = np.array([address(rows), rows.strides[0], address(out), n_blocks], np.int64)

        run_all(pack_kernels(isa)[t.name], args, 2)

        assert np.array_equal(out[:2], t.format.pack(rows).reshape(2, -1)), n_blocks
        assert (out[2] == checks.POISON).all()


@every_type
@pytest.mark.parametrize("rows", [1, 15, 16, 33])
def test_a_pack_holds_the_strips_of_its_format(t, rows):
    k = 2 * max(t.values, 32)
    blocks = rows_of(t, rows, k)

    packed = quant.pack(blocks, t.name)

    strips = t.format.pack(blocks.reshape(rows, -1, t.bytes))
    assert np.array_equal(packed.data, strips.reshape(-1))
    assert (packed.type, packed.rows, packed.k) == (t, rows, k)
    assert packed.n_strips * packed.strip_bytes == len(packed.data)


def test_a_pack_made_by_several_threads_is_the_same():
    blocks = rows_of(TYPES["Q6_K"], 200, 512)
    with Pool(THREADS[-1]) as pool:
        packed = quant.packing.pack(blocks, "Q6_K", pool)

    assert np.array_equal(packed.data, quant.pack(blocks, "Q6_K").data)


def test_rows_may_be_read_only_and_apart():
    wide = rows_of(TYPES["Q4_0"], 20, 128)
    wide.setflags(write=False)
    rows = wide[2:, :36]

    packed = quant.pack(rows, 2)

    assert np.array_equal(packed.data, quant.pack(rows.copy(), "q4_0").data)


@every_type
@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_matmul_gives_the_bits_of_the_reference(t, precision):
    k = {"small": 96, "super": 256, "float": 37}[t.kind]
    blocks, x = rows_of(t, 37, k), random_x(11, k)
    expected = reference.matmul_bits(t, blocks.reshape(37, -1, t.bytes), x, precision)
    packed = quant.pack(blocks, t)

    for n in (1, 3, 11):
        for threads in THREADS:
            out = quant.matmul(packed, x[:n], threads, precision)

            assert not checks.differences(out, expected[:n]), (n, threads)


@every_type
def test_matmul_is_close_to_the_product_of_the_decoded_weights(t):
    blocks, x = rows_of(t, 40, 512), random_x(3, 512)

    y = quant.matmul(quant.pack(blocks, t), x)

    dense = quant.dequantize(blocks, t).astype(np.float64)
    # One code of 127 for the largest of 32 values: half a step of it for each product.
    tolerance = 1e-6 if t.kind == "float" else 0.5 / 127
    largest = np.abs(x).reshape(3, 16, 32).max(-1).repeat(32, 1)
    assert np.all(np.abs(y - x @ dense.T) <= tolerance * (largest @ np.abs(dense).T) * 1.01)


def test_many_columns_are_cut_into_pieces_that_do_not_show():
    t = TYPES["Q4_K"]
    packed, x = quant.pack(rows_of(t, 20, 256), t), random_x(1030, 256)

    whole = quant.matmul(packed, x)

    for at in (0, 511, 512, 1029):
        assert np.array_equal(whole[at : at + 1], quant.matmul(packed, x[at : at + 1]))


def test_matmul_takes_views_and_leaves_x_alone():
    packed, wide = quant.pack(rows_of(TYPES["Q8_0"], 17, 64), "Q8_0"), random_x(4, 128)
    before = wide.copy()

    assert np.array_equal(
        quant.matmul(packed, wide[:, ::2]), quant.matmul(packed, wide[:, ::2].copy())
    )
    assert np.array_equal(wide, before)


def test_empty_products_are_empty():
    packed = quant.pack(rows_of(TYPES["Q8_0"], 17, 64), "Q8_0")

    assert quant.matmul(packed, random_x(0, 64)).shape == (0, 17)
    assert quant.matmul(quant.pack(np.empty((0, 68), np.uint8), "Q8_0"), random_x(2, 64)).shape == (
        2,
        0,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"x": random_x(2, 32)}, "expected float32 (n, 64), got float32 (2, 32)"),
        ({"x": random_x(2, 64).astype(np.float64)}, "got float64 (2, 64)"),
        ({"threads": 0}, "got 0"),
        ({"threads": 10**6}, "no such number of threads"),
        ({"precision": "fp4"}, "expected one of int8, int16"),
    ],
)
def test_matmul_says_what_does_not_fit(arguments, says):
    packed = quant.pack(rows_of(TYPES["Q8_0"], 17, 64), "Q8_0")

    with pytest.raises(quant.QuantError) as error:
        quant.matmul(**{"pack": packed, "x": random_x(2, 64)} | arguments)

    assert says in str(error.value)


@pytest.mark.parametrize(
    "blocks", [np.zeros((4, 33), np.uint8), np.zeros((4, 34), np.int8), np.zeros(34, np.uint8)]
)
def test_pack_refuses_bytes_that_are_no_rows_of_the_type(blocks):
    with pytest.raises(quant.QuantError, match="no rows of Q8_0"):
        quant.pack(blocks, "Q8_0")


def test_a_forked_process_gets_threads_of_its_own():
    script = """
import os, warnings
import numpy as np, quant
warnings.simplefilter("ignore")
blocks = np.ones((20, 68), np.uint8)
x = np.ones((2, 64), np.float32)
y = quant.matmul(quant.pack(blocks, "Q8_0"), x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(quant.matmul(quant.pack(blocks, "Q8_0"), x), y) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    if not hasattr(sys, "getwindowsversion"):
        done = subprocess.run([sys.executable, "-c", script], timeout=120, check=False)
        assert done.returncode == 0
