"""Which CPUs this process may use: affinity, core classes, siblings, the control group's quota.

Facts come from the system at run time, never by arithmetic on a core count. `root` is the folder that
holds /proc and /sys: a test can fake a machine. Imports neither numpy nor numba.
"""

from __future__ import annotations

import os
import sys

from quant import cgroup

# Cores whose capacity or top frequency is below this share of the best one's belong to a lower
# class: efficient cores reach 0.3 to 0.75, favoured cores of one class differ by at most a tenth.
SAME_CLASS = 0.8


# From this fraction of a CPU on the quota feeds one thread more. All threads of a group are stopped when
# it is used up, and a thread that waits holds nobody else: 1.5 CPUs gave 1.8 times the prefill and 1.2
# times the decode with two threads, 1.25 the 1.4 and 0.95, 1.1 the 1.2 and 0.88 (docs/performance.md).
COUNTS = 0.25


class Cores:
    """Which CPUs this process may use, and how many threads are worth starting."""

    __slots__ = ("allowed", "performance", "present", "quota")

    def __init__(
        self,
        allowed: tuple[int, ...],
        performance: tuple[int, ...],
        quota: float | None,
        present: int = 0,
    ) -> None:
        self.allowed = allowed  # logical CPUs of the affinity mask
        self.performance = performance  # one logical CPU per allowed core of the best class
        self.quota = quota  # CPUs' worth of time that the control group grants; None: no limit
        self.present = max(present, len(allowed))  # logical CPUs of the machine

    @property
    def threads(self) -> int:
        """The default thread count: performance cores, at most the quota."""
        return min(len(self.performance), self._granted)

    @property
    def rule(self) -> tuple[str, str]:
        """What decided the count, in a word ("quota", "affinity", "cores", "all") and in words."""
        n, allowed = len(self.performance), len(self.allowed)
        if self.quota is not None and self._granted < n:
            return "quota", f"the control group grants {self.quota:.2f} CPUs"
        if allowed < self.present:
            more = f", {n} fast cores" if n < allowed else ""
            return "affinity", f"{allowed} of {self.present} CPUs are allowed{more}"
        if n < allowed:
            return "cores", f"{n} fast cores, one thread each, of {allowed} CPUs"
        return "all", "every CPU is a fast core of its own"

    @property
    def _granted(self) -> int:
        """Threads that the quota feeds."""
        if self.quota is None:
            return len(self.performance)
        return max(1, int(self.quota + 1 - COUNTS))


def cores(root: str = "/", affinity: set[int] | None = None) -> Cores:
    """The CPUs of this process: affinity, core classes, siblings, control group quota."""
    if sys.platform != "linux" and root == "/":
        from quant import cpuid

        every = tuple(range(os.cpu_count() or 1))
        return Cores(every, every[: cpuid.performance_cores() or len(every)], None)
    if affinity is None:
        affinity = set(os.sched_getaffinity(0)) if sys.platform == "linux" else set()
    allowed = tuple(sorted(affinity)) or (0,)
    present = parse_list(cgroup.read(os.path.join(root, "sys/devices/system/cpu/online")))
    return Cores(allowed, _performance(root, allowed), cgroup.cpu_quota(root), len(present))


def _performance(root: str, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """The first logical CPU of each allowed core of the best class that is allowed."""
    best = _best_class(root, allowed)
    firsts: dict[object, int] = {}
    for cpu in best:
        firsts.setdefault(_siblings(root, cpu), cpu)
    return tuple(firsts.values())


def _best_class(root: str, allowed: tuple[int, ...]) -> list[int]:
    # Intel's hybrid CPUs list each core type as a performance-counter device.
    fast = parse_list(cgroup.read(os.path.join(root, "sys/devices/cpu_core/cpus")))
    slow = parse_list(cgroup.read(os.path.join(root, "sys/devices/cpu_atom/cpus")))
    if fast and slow:
        return [cpu for cpu in allowed if cpu in fast] or list(allowed)
    for fact in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        value = {cpu: number(cpu_path(root, cpu, fact)) for cpu in allowed}
        if all(value.values()):
            top = max(value.values())
            return [cpu for cpu in allowed if value[cpu] >= SAME_CLASS * top]
    return list(allowed)


def _siblings(root: str, cpu: int) -> object:
    for name in ("core_cpus_list", "thread_siblings_list"):
        group = parse_list(cgroup.read(cpu_path(root, cpu, f"topology/{name}")))
        if group:
            return frozenset(group)
    return cpu


def parse_list(text: str) -> set[int]:
    """The kernel's list format, "0-3,8": a set of numbers; what is not a number is left out."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def cpu_path(root: str, cpu: int, name: str) -> str:
    """Where the system keeps a fact about one CPU."""
    return os.path.join(root, f"sys/devices/system/cpu/cpu{cpu}", name)


def number(path: str) -> int:
    """A file with one number, 0 where there is none."""
    text = cgroup.read(path).strip()
    return int(text) if text.isdigit() else 0
