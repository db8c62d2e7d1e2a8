"""Quantized activations: the blocks that the reference describes, byte for byte."""

import numpy as np
import pytest

from quant import activations, checks, cpu
from quant.calls import act_bytes, quantize_row, run_all
from quant.reference import quantize_activations
from quant.simd.layout import ACTS

every_isa = pytest.mark.parametrize("isa", cpu.exact()[::-1])
both_formats = pytest.mark.parametrize("fmt", ["a8", "a16"])
MODES = list(dict.fromkeys(pair[1] for pair in checks.PAIRS))


@pytest.fixture
def quantize(kernels):
    def run(isa, fmt, x, fill=checks.POISON):
        n, k = x.shape
        blocks = np.full(act_bytes(n, k, fmt), fill, np.uint8)
        run_all(kernels(isa)[activations.quantize.spec(fmt)], quantize_row(x, blocks), n)
        return blocks

    return run


def codes_of(blocks, fmt, n, k):
    """(n, k) codes and (n, k / 32) scales out of a8 or a16 blocks."""
    act = ACTS[fmt]
    b = blocks[: -(-k // 256) * n * act.size].reshape(-1, n, act.size)
    planes = b[..., : act.dx].view(np.int8).astype(np.int32).reshape(len(b), n, act.planes, 256)
    codes = planes[:, :, 0] if act.planes == 1 else planes[:, :, 0] * 128 + planes[:, :, 1]
    scales = np.ascontiguousarray(b[..., act.dx : act.dx + 32]).view(np.float32)
    return (v.transpose(1, 0, 2).reshape(n, -1) for v in (codes, scales))


@every_isa
@both_formats
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "k"), [(1, 32), (3, 256), (5, 544), (2, 1056)])
def test_blocks_equal_the_reference_and_nothing_else_is_written(isa, fmt, mode, n, k, quantize):
    x = checks.activations(np.random.default_rng([n, k]), mode, n, k)

    blocks = quantize(isa, fmt, x)

    expected = checks.act_blocks(x, fmt, isa, checks.POISON)
    assert np.array_equal(checks.canonical(blocks, fmt), checks.canonical(expected, fmt))


@every_isa
@both_formats
def test_codes_and_scales_are_the_reference_read_back_without_knowing_the_sums(isa, fmt, quantize):
    x = checks.activations(np.random.default_rng(1), "wide", 4, 512)

    codes, scales = codes_of(quantize(isa, fmt, x), fmt, 4, 512)

    expected = quantize_activations(x, ACTS[fmt].limit)
    assert np.array_equal(codes, expected.codes)
    assert np.array_equal(scales, expected.dx)


@every_isa
@both_formats
def test_the_largest_value_takes_the_limit_and_halves_go_to_the_even_code(isa, fmt, quantize):
    limit = ACTS[fmt].limit
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = limit, -limit, 0.5, 1.5, 2.5, -2.5  # the scale is exactly 1

    codes, scales = codes_of(quantize(isa, fmt, x, fill=0), fmt, 1, 32)

    assert scales[0, 0] == 1
    assert codes[0, :6].tolist() == [limit, -limit, 0, 2, 2, -2]


@every_isa
@both_formats
def test_a_scale_below_the_smallest_normal_number_counts_as_zero(isa, fmt, quantize):
    limit = np.float32(ACTS[fmt].limit)
    x = np.zeros((2, 32), np.float32)
    x[0, 3] = limit * np.float32(2.0**-126)
    x[1, 3] = np.nextafter(x[0, 3], np.float32(0)) * np.float32(0.99)

    codes, scales = codes_of(quantize(isa, fmt, x, fill=0), fmt, 2, 32)

    assert scales[0, 0] == np.float32(2.0**-126)
    assert codes[0, 3] == limit
    assert scales[1, 0] == 0
    assert not codes[1].any()


@every_isa
@both_formats
def test_rows_may_stand_apart(isa, fmt, quantize):
    wide = checks.activations(np.random.default_rng(2), "random", 4, 96)
    rows = wide[:, :64]

    blocks = quantize(isa, fmt, rows)

    assert np.array_equal(blocks, quantize(isa, fmt, np.ascontiguousarray(rows)))
