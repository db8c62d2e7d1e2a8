"""Kernels for Arm, compiled here and run on an emulated processor: the reference's bits."""

import platform

import pytest

from quant import selftest

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(
        platform.machine() in ("arm64", "aarch64"), reason="this is Arm: the other tests run there"
    ),
]

FEW = ("quantize:a16", "stream:Q4_K:a8:one", "panel:Q8_0:a16")
DOZEN = (
    "quantize:a8",
    "stream:Q4_0:a8:one",
    "stream:Q5_1:a16:few",
    "stream:Q8_0:a8:few",
    "stream:Q5_K:a16:one",
    "stream:Q6_K:a8:one",
    "panel:Q4_1:a8",
    "panel:Q5_0:a16",
    "panel:Q4_K:a16",
    "panel:Q6_K:a8",
    "floats:F16:one",
    "floats:BF16:many",
)
# The generic kernels must do without the dot product, which this processor lacks.
PROCESSORS = {"neondot": "apple-m1", "generic": "cortex-a72"}


def _pairs(objects):
    return [f"{text}={path}" for text, path in objects.items()]


def check(isa, kernels, arm, cross):
    objects = cross(isa, "aarch64", *kernels)
    specs = {selftest.name_of(spec): spec for spec in selftest.specs()}

    out = arm(PROCESSORS[isa], "tests/machine/emulated.py", isa, *_pairs(objects))

    digests = dict(line.split() for line in out.splitlines())
    assert digests == {text: selftest.expected(specs[text], isa) for text in kernels}


@pytest.mark.parametrize("isa", PROCESSORS)
def test_three_kernels_give_the_bits_of_the_reference_on_arm(isa, arm, cross):
    check(isa, FEW, arm, cross)


@pytest.mark.slow
@pytest.mark.parametrize("isa", PROCESSORS)
def test_a_dozen_kernels_give_the_bits_of_the_reference_on_arm(isa, arm, cross):
    check(isa, DOZEN, arm, cross)
