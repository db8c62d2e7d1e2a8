"""AVX-512 kernels: natively where this CPU has it, else one by one in an emulator."""

import platform
import shutil
import sys
from pathlib import Path

import pytest

from quant import cpu, jit, selftest
from quant.link import callable_at

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bochs

ISA = "avx512vnni"
NATIVE = ISA in cpu.supported()
pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 machine"),
]
needs_bochs = pytest.mark.skipif(
    shutil.which("bochs") is None or not bochs.BIOS.is_file(),
    reason="Bochs is not installed: apt-get install bochs bochsbios vgabios",
)
DOZEN = (
    "quantize:a8",
    "quantize:a16",
    "stream:Q4_0:a8:one",
    "stream:Q5_1:a16:few",
    "stream:Q8_0:a8:one",
    "stream:Q4_K:a8:few",
    "stream:Q6_K:a16:one",
    "panel:Q5_0:a8",
    "panel:Q8_0:a16",
    "panel:Q5_K:a8",
    "panel:Q6_K:a8",
    "floats:F16:many",
)


def check_in_bochs(text, tools, cross):
    data = cross(ISA, "x86_64", text)[text].read_bytes()
    spec = next(s for s in selftest.specs() if selftest.name_of(s) == text)

    assert bochs.digest(tools, data, spec) == selftest.expected(spec, ISA)


@needs_bochs
def test_a_kernel_gives_the_bits_of_the_reference_on_an_emulated_avx512_processor(tools, cross):
    check_in_bochs("stream:Q4_K:a8:one", tools, cross)


@needs_bochs
@pytest.mark.slow
@pytest.mark.skipif(NATIVE, reason="this CPU has AVX-512: the kernels run natively")
@pytest.mark.parametrize("text", DOZEN)
def test_a_dozen_kernels_give_the_bits_of_the_reference_on_an_emulated_avx512_processor(
    text, tools, cross
):
    check_in_bochs(text, tools, cross)


@pytest.mark.skipif(not NATIVE, reason="this CPU has no AVX-512 with VNNI")
def test_every_kernel_gives_the_bits_of_the_reference_on_this_avx512_processor():
    specs = selftest.specs()
    kernels = jit.load(specs, isa=ISA, fallback=False)

    wrong = [
        spec.symbol
        for spec in specs
        if selftest.computed(spec, ISA, callable_at(kernels[spec])) != selftest.expected(spec, ISA)
    ]

    assert not wrong
