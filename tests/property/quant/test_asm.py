"""`make asm`: names of kernels, what is said of wrong ones, and the summary of an assembly."""

import pytest

from quant import asm
from quant.errors import QuantError

BOTH = ("quant", "gguf_runtime.kernels")

LOOP = """
\tmovq\t%rsp, %rbp
\tvpxor\t%xmm0, %xmm0, %xmm0
.LBB0_1:                                # a loop
\tvmovdqu64\t(%rdi), %zmm1
\tvpdpbusd\t%zmm2, %zmm1, %zmm17
\tvmovaps\t%zmm17, -64(%rbp)            # 64-byte Spill
\taddq\t$64, %rdi
\tjne\t.LBB0_1
\tretq
"""


def test_kernels_are_found_in_the_sources_by_their_short_names():
    names = {n.factory: str(n) for n in asm.kernels_in(*BOTH)}

    assert names["stream"] == "stream:QTYPE:FMT:COLUMNS"
    assert names["rms_norm"] == "rms_norm:FORM:FMT"
    assert "macro" not in names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strem:Q4_K:a8:1", "did you mean stream?"),
        ("nothing", "stream:QTYPE:FMT:COLUMNS"),
        ("stream:Q4_K", "got 1 of 3 parameters"),
        ("stream:Q9:a8:1", "Q4_K"),
        ("stream:Q4_K:a9:1", "no variant 'stream:Q4_K:a9:1'"),
        ("quant.nowhere.stream:Q4_K:a8:1", "there is no module quant.nowhere"),
    ],
)
def test_a_name_that_is_none_is_answered_with_those_that_are(text, said):
    with pytest.raises(QuantError) as error:
        asm.kernel_of(text)

    assert said in str(error.value)


def test_an_instruction_set_is_found_in_another_architecture():
    assert asm.target_of("neondot") == ("neondot", "aarch64")
    assert asm.target_of("aarch64/generic") == ("generic", "aarch64")
    with pytest.raises(QuantError, match="neon9"):
        asm.target_of("neon9")


def test_the_summary_counts_instructions_registers_and_spills():
    said = asm.summary(LOOP).splitlines()

    # Four use vector registers: 0, 1, 2 and 17; one of them stores to the stack.
    assert said[0].startswith(
        "# all: 8 instructions, 4 vector; 4 vector registers, 1 stack accesses of vectors, 0 calls"
    )
    assert said[1].startswith("# .LBB0_1: 5 instructions, 3 vector: ")
    assert said[2] == "#   3 vector registers, 1 stack accesses, 0 calls"


def test_without_a_kernel_all_of_them_are_listed(capsys):
    assert asm.main(["--also", "gguf_runtime.kernels"]) == 2

    assert "\n  rms_norm:FORM:FMT\n" in capsys.readouterr().err
