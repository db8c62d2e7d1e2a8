"""What this machine is: instruction set, caches, memory; cores are in `quant.topology`.

Facts come from the system at run time: never from a compiler, never by arithmetic on a core count.
Every function takes `root`, the folder that holds /proc and /sys: a test can fake a machine.
Other systems than Linux are asked in `quant.cpuid`. Imports neither numpy nor numba.

Names of instruction sets, lowest first:

x86-64   generic (AVX, FMA) · avx2 (AVX2, F16C) · avxvnni (AVX-VNNI, 256 bits)
         · avx512vnni (AVX-512 F BW DQ VL and VNNI)
Arm64    generic · neondot (dot products)

What each may use stands in `quant.simd.isa.TARGETS`; a test compares the two tables.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from quant import cgroup
from quant.errors import QuantError
from quant.topology import Cores as Cores
from quant.topology import cores as cores
from quant.topology import cpu_path, number, parse_list

_SSE = frozenset({"sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"})
_X86 = _SSE | {"avx", "fma"}
_AVX2 = _X86 | {"avx2", "f16c", "bmi1", "bmi2"}
_AVX_VNNI = _AVX2 | {"avx_vnni"}
_VNNI = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
_NEON = frozenset({"asimd"})

NO_FMA = "nofma"  # results within 1e-3 of the others

# family -> (name, what the CPU must have), lowest first
_LEVELS: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {
    "x86": (
        (NO_FMA, _SSE),
        ("generic", _X86),
        ("avx2", _AVX2),
        ("avxvnni", _AVX_VNNI),
        ("avx512vnni", _VNNI),
    ),
    "arm": (("generic", _NEON), ("neondot", _NEON | {"asimddp"})),
    "other": (),
}
_MACHINES = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}


class Cache:
    """One data or unified cache as seen from the first performance core."""

    __slots__ = ("level", "line_bytes", "shared_by", "size_bytes")

    def __init__(self, level: int, size_bytes: int, line_bytes: int, shared_by: int) -> None:
        self.level = level
        self.size_bytes = size_bytes
        self.line_bytes = line_bytes
        self.shared_by = shared_by  # logical CPUs


class Memory:
    """Bytes: what the machine has, what this process may have, what is to be had now."""

    __slots__ = ("available_bytes", "limit_bytes", "total_bytes")

    def __init__(self, total_bytes: int, limit_bytes: int | None, available_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.limit_bytes = limit_bytes  # the tightest control group or address-space limit
        self.available_bytes = available_bytes


# ---- instruction set -------------------------------------------------------------------------


def family(machine: str | None = None) -> str:
    """ "x86", "arm" or "other"."""
    name = machine if machine is not None else _machine()
    # A 32-bit Python on a 64-bit CPU runs 32-bit code.
    return _MACHINES.get(name.lower(), "other") if sys.maxsize > 2**32 else "other"


def features(root: str = "/", machine: str | None = None) -> frozenset[str]:
    """Features of this CPU that the system lets programs use, by their names in /proc/cpuinfo."""
    return _own_features() if (root, machine) == ("/", None) else _features(root, machine)


@cache
def _own_features() -> frozenset[str]:
    return _features("/", None)


def _features(root: str, machine: str | None) -> frozenset[str]:
    kind = family(machine)
    if sys.platform == "linux" or root != "/":
        # Arm: the auxiliary vector is what the kernel promises; cpuinfo may be another machine's.
        found = frozenset[str]() if kind == "x86" or root != "/" else _hwcap()
        found = found or _cpuinfo(root)
        if found or root != "/":
            return found
    from quant import cpuid

    return cpuid.features(kind)


def supported(root: str = "/", machine: str | None = None) -> tuple[str, ...]:
    """Instruction sets with kernels that this CPU can run, lowest first."""
    has = features(root, machine)
    return tuple(name for name, needs in _LEVELS[family(machine)] if needs <= has)


def exact(root: str = "/", machine: str | None = None) -> tuple[str, ...]:
    """Those of `supported()` whose results are the contract's, bit for bit: with fma."""
    return tuple(name for name in supported(root, machine) if name != NO_FMA)


def missing(name: str, root: str = "/", machine: str | None = None) -> tuple[str, ...]:
    """Features that this CPU lacks for instruction set `name`, sorted."""
    needs = dict(_LEVELS[family(machine)])[name]
    return tuple(sorted(needs - features(root, machine)))


def isa(root: str = "/", machine: str | None = None, override: str | None = None) -> str:
    """The instruction set to use: the best one, or what GGUF_RUNTIME_ISA (or `override`) names.

    QuantError when that name has no kernels or needs what this CPU lacks.
    """
    can = supported(root, machine)
    levels = _LEVELS[family(machine)]
    if not can:
        lacks = ", ".join(missing(levels[0][0], root, machine)) if levels else "kernels"
        raise QuantError(
            f"no kernels can run on this CPU: it lacks {lacks}",
            hint="GGUF_RUNTIME_EXACT=1 runs without kernels, slowly",
        )
    asked = override if override is not None else os.environ.get("GGUF_RUNTIME_ISA", "")
    asked = asked.strip().lower()
    if not asked:
        return can[-1]
    if asked in can:
        return asked
    if asked in dict(levels):
        lacks = ", ".join(missing(asked, root, machine))
        what = f"GGUF_RUNTIME_ISA={asked}: this CPU lacks {lacks}"
    else:
        what = f"GGUF_RUNTIME_ISA={asked}: no kernels of that name for this kind of CPU"
    choices = ", ".join(can)
    raise QuantError(
        what, expected=f"one of {choices}", got=asked, hint=f"this CPU runs: {choices}"
    )


def lower(name: str, root: str = "/", machine: str | None = None) -> str | None:
    """The next lower instruction set that this CPU can run; None below the lowest."""
    names = [n for n, _ in _LEVELS[family(machine)]]
    can = supported(root, machine)
    return next((n for n in names[: names.index(name)][::-1] if n in can), None)


def _machine() -> str:
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return os.uname().machine


def _hwcap() -> frozenset[str]:
    from quant import cpuid

    return cpuid.hwcap()


def _cpuinfo(root: str) -> frozenset[str]:
    """Features that all processors of /proc/cpuinfo have."""
    common: frozenset[str] | None = None
    for line in cgroup.read(os.path.join(root, "proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            here = frozenset("sse3" if f == "pni" else f for f in value.split())
            common = here if common is None else common & here
    return common or frozenset()


# ---- caches and memory -----------------------------------------------------------------------


def caches(root: str = "/", cpu: int = 0) -> tuple[Cache, ...]:
    """Data and unified caches of one CPU, nearest first; empty where the system does not tell."""
    if sys.platform != "linux" and root == "/":
        from quant import cpuid

        return tuple(Cache(*facts) for facts in cpuid.caches())
    found = []
    for i in range(8):
        base = cpu_path(root, cpu, f"cache/index{i}")
        if cgroup.read(f"{base}/type").strip() in ("Data", "Unified"):
            size = _size(cgroup.read(f"{base}/size"))
            shared = len(parse_list(cgroup.read(f"{base}/shared_cpu_list"))) or 1
            line = number(f"{base}/coherency_line_size") or 64
            found.append(Cache(number(f"{base}/level"), size, line, shared))
    return tuple(sorted(found, key=lambda c: c.level))


def _size(text: str) -> int:
    text = text.strip()
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdigit() else 0


def memory(root: str = "/") -> Memory:
    """Total, limit and what can still be had: the machine's free memory and all limits above us."""
    if sys.platform != "linux" and root == "/":
        from quant import cpuid

        total, free = cpuid.memory()
        return Memory(total, None, free)
    facts: dict[str, int] = {}
    for line in cgroup.read(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        number = value.strip().removesuffix("kB").strip()
        if number.isdigit():
            facts[name] = int(number) * 1024
    total = facts.get("MemTotal", 0)
    # Before Linux 3.14 there was no MemAvailable.
    available = facts.get("MemAvailable", facts.get("MemFree", 0) + facts.get("Cached", 0))
    limits = cgroup.memory_limits(root)
    if root == "/":
        limits += cgroup.address_space()
    limits = [(limit, used) for limit, used in limits if limit < total or not total]
    free = min([available, *(max(0, limit - used) for limit, used in limits)])
    return Memory(total, min((limit for limit, _ in limits), default=None), free)
