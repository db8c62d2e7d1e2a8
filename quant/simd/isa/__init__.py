"""One module per instruction set: the words that differ, and how code for it is targeted."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quant.simd.words import Words


@dataclass(frozen=True, slots=True)
class Target:
    """What LLVM is told: a fixed feature list, never the host's name: one object for all."""

    isa: str
    arch: str  # "x86_64" or "aarch64"
    cpu: str  # base model
    features: str  # instructions allowed
    tune: str  # scheduling model, "" for the base model's: changes speed, never a bit
    module: str
    words: str
    exact: bool = True  # False: without fma, so results differ from the contract's in the last bits

    def words_class(self) -> type[Words]:
        """The vocabulary (imports llvmlite)."""
        cls: type[Words] = getattr(importlib.import_module(self.module), self.words)
        return cls


_SSE = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"
_X86 = _SSE + ",+avx,+fma"
_AVX2 = _X86 + ",+avx2,+f16c,+bmi,+bmi2"
_AVX_VNNI = _AVX2 + ",+avxvnni"
_VNNI = _AVX2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,-prefer-256-bit"

_NEON = "+neon"
_ISA = "quant.simd.isa."

# isa, arch, cpu, features, tune, module, words
_ROWS = (
    Target("nofma", "x86_64", "x86-64", _SSE, "", _ISA + "generic", "NoFmaX86", exact=False),
    Target("generic", "x86_64", "x86-64", _X86, "generic", _ISA + "generic", "GenericX86"),
    Target("avx2", "x86_64", "x86-64", _AVX2, "znver3", _ISA + "avx2", "Avx2"),
    Target("avxvnni", "x86_64", "x86-64", _AVX_VNNI, "alderlake", _ISA + "avxvnni", "AvxVnni"),
    Target(
        "avx512vnni", "x86_64", "x86-64", _VNNI, "icelake-server", _ISA + "avx512vnni", "Avx512Vnni"
    ),
    Target("generic", "aarch64", "generic", _NEON, "", _ISA + "generic", "GenericArm"),
    Target(
        "neondot",
        "aarch64",
        "generic",
        _NEON + ",+dotprod",
        "apple-m1",
        _ISA + "neondot",
        "NeonDot",
    ),
)
TARGETS = {(t.isa, t.arch): t for t in _ROWS}
