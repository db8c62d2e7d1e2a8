"""One module per instruction set: the words that differ, and how code for it is targeted."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quant.simd.words import Words


@dataclass(frozen=True, slots=True)
class Target:
    """What LLVM is told: a fixed feature list, never the host's name, so objects are the same everywhere.

    cpu is the base model, tune the scheduling model (changes speed, never a bit), features the instructions allowed.
    """

    isa: str
    arch: str  # "x86_64" or "aarch64"
    cpu: str
    features: str
    tune: str
    module: str
    words: str

    def words_class(self) -> type[Words]:
        """The vocabulary (imports llvmlite)."""
        cls: type[Words] = getattr(importlib.import_module(self.module), self.words)
        return cls


_X86 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+fma"
_AVX2 = _X86 + ",+avx2,+f16c,+bmi,+bmi2"
_VNNI = _AVX2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,-prefer-256-bit"

TARGETS = {
    ("generic", "x86_64"): Target(
        "generic", "x86_64", "x86-64", _X86, "generic", "quant.simd.isa.generic", "GenericX86"
    ),
    ("avx2", "x86_64"): Target(
        "avx2", "x86_64", "x86-64", _AVX2, "znver3", "quant.simd.isa.avx2", "Avx2"
    ),
    ("avx512vnni", "x86_64"): Target(
        "avx512vnni",
        "x86_64",
        "x86-64",
        _VNNI,
        "icelake-server",
        "quant.simd.isa.avx512vnni",
        "Avx512Vnni",
    ),
    ("generic", "aarch64"): Target(
        "generic", "aarch64", "generic", "+neon", "", "quant.simd.isa.generic", "GenericArm"
    ),
    ("neondot", "aarch64"): Target(
        "neondot",
        "aarch64",
        "generic",
        "+neon,+dotprod",
        "apple-m1",
        "quant.simd.isa.neondot",
        "NeonDot",
    ),
}
