"""The machine code of inner loops: the instruction that belongs there, no calls, few stack accesses.

Compiled for every instruction set on any machine; nothing is run.
"""

import pytest

from quant.asm import inner_loops
from quant.types import TYPES

ARCH = {"avx2": "x86_64", "avxvnni": "x86_64", "avx512vnni": "x86_64", "neondot": "aarch64"}
DOT = {"avx2": "vpmaddubsw", "avxvnni": "vpdpbusd", "avx512vnni": "vpdpbusd", "neondot": "sdot"}
WIDE = {"avx2": "%ymm", "avxvnni": "%ymm", "avx512vnni": "%zmm", "neondot": ".4s"}
PER_GROUP = {
    "avx2": 16,
    "avxvnni": 16,
    "avx512vnni": 8,
    "neondot": 32,
}  # dot products of 32 k by 16 rows
PANEL_COLUMNS = {
    "avx2": 2,
    "avxvnni": 2,
    "avx512vnni": 8,
    "neondot": 2,
}  # at least, over strips and columns

QUANTIZED = [t.name for t in TYPES.values() if t.kind != "float"]
STREAMS = [f"stream:{name}:a8:one" for name in QUANTIZED]
PANELS = [f"panel:{name}:a8" for name in QUANTIZED]
FEW = ("stream:Q4_K:a8:one", "stream:Q8_0:a8:one", "panel:Q4_K:a8", "panel:Q6_K:a8")
every_isa = pytest.mark.parametrize("isa", ARCH)


def check(isa, kernels, cross):
    for text, path in cross(isa, ARCH[isa], *kernels, suffix=".s").items():
        loops = [x for x in inner_loops(path.read_text()) if x.vector()[DOT[isa]]]
        assert len(loops) == 1, text
        loop = loops[0]
        dots = [line for line in loop.lines if line.startswith(DOT[isa])]
        assert all(WIDE[isa] in line for line in dots), text
        assert not loop.calls(), text
        if text.startswith("stream"):
            assert len(dots) == PER_GROUP[isa], text
            assert not loop.spills(), text
        else:
            assert len(dots) >= PER_GROUP[isa] * PANEL_COLUMNS[isa], text
            # Sub-scales and minima of a register tile may not all fit beside its accumulators.
            assert loop.spills() <= loop.vector().total() / 10, text


@every_isa
def test_inner_loops_are_made_of_dot_products_and_do_without_the_stack(isa, cross):
    check(isa, FEW, cross)


@pytest.mark.slow
@every_isa
def test_inner_loops_of_every_type_are_made_of_dot_products(isa, cross):
    check(isa, [*STREAMS, *PANELS], cross)


@every_isa
def test_float_types_are_multiplied_by_fma_in_whole_registers(isa, cross):
    fma = "fmla" if isa == "neondot" else "vfmadd"
    (path,) = cross(isa, ARCH[isa], "floats:F16:many", suffix=".s").values()

    loops = [
        x
        for x in inner_loops(path.read_text())
        if sum(n for kind, n in x.vector().items() if kind.startswith(fma)) >= 32
    ]

    assert len(loops) == 1
    assert loops[0].spills() <= loops[0].vector().total() / 10
    assert not loops[0].calls()
