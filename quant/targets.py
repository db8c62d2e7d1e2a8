"""Machines that kernels can be compiled for, by name: this one and others.

    linux-x86_64 · linux-arm64 · macos-arm64 · …      all instruction sets of that kind of machine
    linux-arm64-neondot                               one of them

The kernels of one system run on any version of it: objects ask for nothing of the system's.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from quant.errors import QuantError
from quant.simd.isa import TARGETS

# system-architecture -> LLVM's architecture and triple
_SYSTEMS = {
    "linux-x86_64": ("x86_64", "x86_64-unknown-linux-gnu"),
    "linux-arm64": ("aarch64", "aarch64-unknown-linux-gnu"),
    "macos-arm64": ("aarch64", "arm64-apple-macosx11.0.0"),
    "macos-x86_64": ("x86_64", "x86_64-apple-macosx11.0.0"),
    "windows-x86_64": ("x86_64", "x86_64-pc-windows-msvc"),
}
_MACHINES = {"amd64": "x86_64", "aarch64": "arm64"}


class Machine(NamedTuple):
    """What to compile for: the name of the system, LLVM's words for it, instruction sets."""

    system: str
    arch: str
    triple: str
    isas: tuple[str, ...]

    @property
    def alone(self) -> bool:
        """Whether its kernels are loaded without llvmlite."""
        return self.system.startswith("linux-")


def systems() -> tuple[str, ...]:
    """Names without instruction sets."""
    return tuple(_SYSTEMS)


def here() -> str | None:
    """The name of this kind of machine; None when it has none."""
    names = {"linux": "linux", "darwin": "macos", "win32": "windows"}
    if sys.platform == "win32":
        machine = os.environ.get("PROCESSOR_ARCHITECTURE", "")
    else:
        machine = os.uname().machine
    machine = _MACHINES.get(machine.lower(), machine.lower())
    name = f"{names.get(sys.platform, sys.platform)}-{machine}"
    return name if name in _SYSTEMS else None


def machine(name: str) -> Machine:
    """The machine of a name; QuantError with all names for one that is none."""
    for system, (arch, triple) in _SYSTEMS.items():
        isas = tuple(isa for isa, a in TARGETS if a == arch)
        if name == system:
            return Machine(system, arch, triple, isas)
        for isa in isas:
            if name == f"{system}-{isa}":
                return Machine(system, arch, triple, (isa,))
    raise QuantError(
        f"no kernels are made for {name!r}",
        expected=f"one of {', '.join(_SYSTEMS)}, or one of these with -INSTRUCTION-SET behind it",
    )
