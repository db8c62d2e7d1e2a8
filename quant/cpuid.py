"""What systems without /proc tell about the machine: cpuid, the auxiliary vector, sysctl, Windows.

Used by `quant.cpu` alone. Every function answers "unknown" (nothing, 0) rather than fail. The
Windows and macOS parts could not be run where this was written; they follow the vendors' headers.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# (leaf, subleaf, register index eax ebx ecx edx, bit) -> name in /proc/cpuinfo
_BITS = {
    "sse3": (1, 0, 2, 0), "ssse3": (1, 0, 2, 9), "sse4_1": (1, 0, 2, 19),
    "sse4_2": (1, 0, 2, 20), "popcnt": (1, 0, 2, 23),
    "fma": (1, 0, 2, 12), "avx": (1, 0, 2, 28), "f16c": (1, 0, 2, 29),
    "bmi1": (7, 0, 1, 3), "avx2": (7, 0, 1, 5), "bmi2": (7, 0, 1, 8),
    "avx512f": (7, 0, 1, 16), "avx512dq": (7, 0, 1, 17), "avx512bw": (7, 0, 1, 30),
    "avx512vl": (7, 0, 1, 31), "avx512_vnni": (7, 0, 2, 11), "avx_vnni": (7, 1, 0, 4),
}  # fmt: skip
_OSXSAVE = (1, 0, 2, 27)
_YMM_STATE, _ZMM_STATE = 0x6, 0xE6  # of XCR0: what the system saves on a switch

# void f(uint32 leaf, uint32 subleaf, uint32 out[4]); out stands in r8 on both systems
_CPUID = {
    "posix": "53 49 89 d0 89 f8 89 f1",  # push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi
    "nt": "53 89 c8 89 d1",  # push rbx; mov eax, ecx; mov ecx, edx
}
# cpuid; mov [r8], eax; mov [r8+4], ebx; mov [r8+8], ecx; mov [r8+12], edx; pop rbx; ret
_CPUID_END = "0f a2 41 89 00 41 89 58 04 41 89 48 08 41 89 50 0c 5b c3"
_XGETBV = "31 c9 0f 01 d0 c3"  # xor ecx, ecx; xgetbv; ret

# bit of AT_HWCAP -> name in /proc/cpuinfo (Linux, arch/arm64 uapi/asm/hwcap.h)
_HWCAP = {0: "fp", 1: "asimd", 9: "fphp", 10: "asimdhp", 20: "asimddp"}
_SYSCTL_ARM = {"FEAT_DotProd": "asimddp"}
_SYSCTL_X86 = {
    "avx1_0": "avx", "avx2_0": "avx2", "fma": "fma", "f16c": "f16c", "bmi1": "bmi1",
    "bmi2": "bmi2", "popcnt": "popcnt", "sse3": "sse3", "supplementalsse3": "ssse3",
    "sse4_1": "sse4_1", "sse4_2": "sse4_2",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512vnni": "avx512_vnni",
}  # fmt: skip


def features(kind: str) -> frozenset[str]:
    """Usable features of an "x86" or "arm" CPU, by Linux's names."""
    if sys.platform == "darwin":
        table = _SYSCTL_ARM if kind == "arm" else _SYSCTL_X86
        prefix = "hw.optional.arm." if kind == "arm" else "hw.optional."
        found = {name for key, name in table.items() if sysctl(prefix + key)}
        return frozenset(found | ({"asimd"} if kind == "arm" else set()))
    if kind == "x86":
        return x86()
    if kind == "arm" and sys.platform == "win32":
        # PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
        dot = ctypes.windll.kernel32.IsProcessorFeaturePresent(43)
        return frozenset({"asimd", "asimddp"} if dot else {"asimd"})
    return frozenset()


def hwcap() -> frozenset[str]:
    """Features of an Arm CPU from the auxiliary vector; empty where there is none."""
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (OSError, AttributeError):
        return frozenset()
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    bits = int(getauxval(16))
    return frozenset(name for bit, name in _HWCAP.items() if bits >> bit & 1)


def x86() -> frozenset[str]:
    """Features by the cpuid instruction, less those whose registers the system does not save."""
    try:
        call = _native(_CPUID["nt" if sys.platform == "win32" else "posix"] + _CPUID_END)
        xgetbv = _native(_XGETBV)
    except (OSError, ValueError):  # a system that forbids writable code
        return frozenset()
    cache: dict[tuple[int, int], tuple[int, ...]] = {}

    def leaf(number: int, sub: int) -> tuple[int, ...]:
        if (number, sub) not in cache:
            out = (ctypes.c_uint32 * 4)()
            call(number, sub, ctypes.addressof(out))
            cache[number, sub] = tuple(out)
        return cache[number, sub]

    def bit(at: tuple[int, int, int, int]) -> bool:
        number, sub, register, shift = at
        known = number <= leaf(0, 0)[0] and (sub == 0 or sub <= leaf(number, 0)[0])
        return known and bool(leaf(number, sub)[register] >> shift & 1)

    found = {name for name, at in _BITS.items() if bit(at)}
    state = int(xgetbv(0, 0, 0)) if bit(_OSXSAVE) else 0
    if state & _YMM_STATE != _YMM_STATE:
        found = {n for n in found if not n.startswith(("avx", "fma", "f16c"))}
    if state & _ZMM_STATE != _ZMM_STATE:
        found = {n for n in found if not n.startswith("avx512")}
    return frozenset(found)


_kept: list[object] = []  # pages of code, for as long as the process lives


def _native(code: str) -> Callable[[int, int, int], int]:
    """A function of three integers from machine code."""
    data = bytes.fromhex(code)
    if sys.platform == "win32":
        reserve = ctypes.windll.kernel32.VirtualAlloc
        reserve.restype = ctypes.c_void_p
        address = reserve(None, 4096, 0x3000, 0x40)  # commit and reserve, read write execute
        if not address:
            raise OSError("no executable memory")
        ctypes.memmove(address, data, len(data))
    else:
        import mmap

        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(data)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        _kept.append(page)
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    return kind(address)


def sysctl(name: str) -> int:
    """A number from macOS's sysctl; 0 where it does not exist."""
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (OSError, AttributeError):
        return 0
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    if call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return 0
    return int(value.value)


def performance_cores() -> int:
    """Physical cores of the best class; 0 when the system does not tell."""
    if sys.platform == "darwin":
        return sysctl("hw.perflevel0.physicalcpu") or sysctl("hw.physicalcpu")
    if sys.platform == "win32":
        return _windows_cores()
    return 0


def _windows_cores() -> int:
    """Cores of the highest efficiency class (GetLogicalProcessorInformationEx, relation 0)."""
    if sys.platform != "win32":
        return 0
    query = ctypes.windll.kernel32.GetLogicalProcessorInformationEx
    size = ctypes.c_uint32(0)
    query(0, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not query(0, buffer, ctypes.byref(size)):
        return 0
    classes, at = [], 0
    while at < size.value:
        # Relationship u32, Size u32, Flags u8, EfficiencyClass u8
        _, length, _, efficiency = struct.unpack_from("<IIBB", buffer.raw, at)
        classes.append(efficiency)
        at += length
    return classes.count(max(classes, default=0))


def caches() -> list[tuple[int, int, int, int]]:
    """(level, bytes, bytes per line, CPUs that share it) where the system tells them."""
    if sys.platform != "darwin":
        return []
    line = sysctl("hw.cachelinesize") or 64
    share = sysctl("hw.perflevel0.cpusperl2") or 1
    sizes = {
        1: (sysctl("hw.perflevel0.l1dcachesize") or sysctl("hw.l1dcachesize"), 1),
        2: (sysctl("hw.perflevel0.l2cachesize") or sysctl("hw.l2cachesize"), share),
        3: (sysctl("hw.l3cachesize"), os.cpu_count() or 1),
    }
    return [(level, size, line, by) for level, (size, by) in sizes.items() if size]


def memory() -> tuple[int, int]:
    """(total, available) bytes."""
    if sys.platform == "darwin":
        names = ("free", "speculative", "purgeable", "pageable_external")
        pages = sum(sysctl(f"vm.page_{name}_count") for name in names)
        total = sysctl("hw.memsize")
        # Where the counters are hidden, half of the machine is a guess on the careful side.
        return total, pages * sysctl("hw.pagesize") or total // 2
    if sys.platform == "win32":
        status = struct.pack("<II7Q", 64, *[0] * 8)  # MEMORYSTATUSEX
        buffer = ctypes.create_string_buffer(status, 64)
        ctypes.windll.kernel32.GlobalMemoryStatusEx(buffer)
        fields = struct.unpack("<II7Q", buffer.raw)
        return int(fields[2]), int(fields[3])
    return 0, 0
