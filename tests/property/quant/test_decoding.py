"""Rows decoded by kernels: what `dequantize` gives. `guarded.py` tells that no byte behind is read."""

import pytest

from quant import checks, cpu, decoding_kernels
from quant.types import TYPES


@pytest.mark.parametrize("isa", cpu.exact()[::-1])
@pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
def test_rows_of_random_bytes_have_the_bits_that_the_format_decodes_them_to(isa, t, kernels):
    kernel = kernels(isa)[decoding_kernels.decode_row.spec(t.name)]

    assert checks.check_decode(kernel, isa, t.name) is None
