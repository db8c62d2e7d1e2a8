"""`quant.cpu` on faked machines: /proc and /sys trees as the kernel's documentation lays them out."""

import subprocess
import sys

import pytest

from quant import QuantError, cpu, cpuid
from quant.simd.isa import TARGETS

HASWELL = "fpu pni ssse3 sse4_1 sse4_2 popcnt avx avx2 fma f16c bmi1 bmi2"
ALDERLAKE = HASWELL + " avx_vnni"
ICELAKE = HASWELL + " avx512f avx512bw avx512dq avx512vl avx512_vnni"
PILEDRIVER = "fpu pni ssse3 sse4_1 sse4_2 popcnt avx fma f16c bmi1"
SANDY_BRIDGE = "fpu pni ssse3 sse4_1 sse4_2 popcnt avx"


class Machine:
    """Writes the files of a machine under a folder."""

    def __init__(self, folder):
        self.folder = folder

    def file(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self

    def cpuinfo(self, *flags, key="flags"):
        text = "".join(f"processor\t: {i}\n{key}\t\t: {f}\n\n" for i, f in enumerate(flags))
        return self.file("proc/cpuinfo", text)

    def cores(self, groups):
        """groups: lists of sibling CPUs."""
        for group in groups:
            for i in group:
                name = f"sys/devices/system/cpu/cpu{i}/topology/core_cpus_list"
                self.file(name, ",".join(map(str, group)) + "\n")
        return self

    def v2(self, group="/", mount_root="/", point="/sys/fs/cgroup"):
        self.file("proc/self/cgroup", f"0::{group}\n")
        line = f"30 23 0:26 {mount_root} {point} rw,nosuid - cgroup2 cgroup2 rw\n"
        return self.file("proc/self/mountinfo", line)

    def v1(self, group="/", mount_root="/"):
        self.file(
            "proc/self/cgroup", f"4:memory:{group}\n3:cpu,cpuacct:{group}\n1:name=systemd:/\n"
        )
        lines = [
            f"31 25 0:2{n} {mount_root} /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
            for n, name in enumerate(["cpu,cpuacct", "memory"])
        ]
        return self.file("proc/self/mountinfo", "".join(lines))

    def meminfo(self, total_kb, available_kb):
        text = f"MemTotal: {total_kb} kB\nMemFree: 1 kB\nMemAvailable: {available_kb} kB\n"
        return self.file("proc/meminfo", text)

    def threads(self, affinity):
        return cpu.cores(str(self.folder), set(affinity)).threads


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture(autouse=True)
def no_override(monkeypatch):
    monkeypatch.delenv("GGUF_RUNTIME_ISA", raising=False)


# ---- instruction sets


@pytest.mark.parametrize(
    ("flags", "best"),
    [(PILEDRIVER, "generic"), (HASWELL, "avx2"), (ALDERLAKE, "avxvnni"), (ICELAKE, "avx512vnni")],
)
def test_isa_is_the_best_that_every_feature_allows(machine, flags, best):
    machine.cpuinfo(flags, flags)

    assert cpu.isa(str(machine.folder), "x86_64") == best


def test_isa_needs_a_feature_on_every_processor(machine):
    machine.cpuinfo(ICELAKE, HASWELL)

    assert cpu.isa(str(machine.folder), "x86_64") == "avx2"


@pytest.mark.parametrize(
    ("features", "best"),
    [("fp asimd crc32", "generic"), ("fp asimd asimddp", "neondot")],
)
def test_isa_on_arm_asks_for_dot_products(machine, features, best):
    machine.cpuinfo(features, key="Features")

    assert cpu.isa(str(machine.folder), "aarch64") == best


def test_a_cpu_without_fma_has_kernels_of_its_own(machine):
    machine.cpuinfo(SANDY_BRIDGE)

    assert cpu.isa(str(machine.folder), "x86_64") == "nofma"


def test_a_cpu_without_kernels_is_refused_by_name_of_the_feature(machine):
    machine.cpuinfo("fpu")

    with pytest.raises(QuantError, match=r"lacks .*ssse3"):
        cpu.isa(str(machine.folder), "x86_64")


def test_a_cpu_of_another_family_is_refused(machine):
    with pytest.raises(QuantError, match="no kernels can run"):
        cpu.isa(str(machine.folder), "riscv64")


def test_levels_demand_what_the_compiler_is_told_it_may_use():
    names = {"bmi": "bmi1", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx512vnni": "avx512_vnni",
             "avxvnni": "avx_vnni",
             "neon": "asimd", "dotprod": "asimddp"}  # fmt: skip
    families = {"x86_64": "x86", "aarch64": "arm"}
    for (isa, arch), target in TARGETS.items():
        used = {f[1:] for f in target.features.split(",") if f.startswith("+")}
        levels = dict(cpu._LEVELS[families[arch]])

        assert levels[isa] == {names.get(f, f) for f in used}, (isa, arch)


def test_override_goes_down(machine, monkeypatch):
    machine.cpuinfo(ICELAKE)
    monkeypatch.setenv("GGUF_RUNTIME_ISA", " AVX2 ")

    assert cpu.isa(str(machine.folder), "x86_64") == "avx2"


def test_override_refuses_what_the_cpu_lacks_and_names_the_feature(machine):
    machine.cpuinfo(PILEDRIVER)

    with pytest.raises(QuantError) as error:
        cpu.isa(str(machine.folder), "x86_64", override="avx2")

    assert "lacks avx2, bmi2" in str(error.value)
    assert "this CPU runs: nofma, generic" in str(error.value)


def test_override_refuses_an_unknown_name_and_lists_the_known(machine):
    machine.cpuinfo(HASWELL)

    with pytest.raises(QuantError, match="avx10") as error:
        cpu.isa(str(machine.folder), "x86_64", override="avx10")

    assert "generic, avx2" in str(error.value)


def test_lower_steps_down_to_the_lowest_that_the_cpu_can_run(machine):
    root = str(machine.folder)
    machine.cpuinfo(ICELAKE)
    assert cpu.lower("avx512vnni", root, "x86_64") == "avx2"
    assert cpu.lower("generic", root, "x86_64") == "nofma"
    assert cpu.lower("nofma", root, "x86_64") is None
    machine.cpuinfo(ICELAKE + " avx_vnni")
    assert cpu.lower("avx512vnni", root, "x86_64") == "avxvnni"
    assert cpu.lower("avxvnni", root, "x86_64") == "avx2"
    machine.cpuinfo("asimd asimddp", key="Features")
    assert cpu.lower("neondot", root, "arm64") == "generic"


@pytest.mark.skipif(sys.platform != "linux" or cpu.family() != "x86", reason="needs Linux on x86")
def test_the_cpuid_instruction_agrees_with_proc():
    known = set(cpuid._BITS)

    assert cpuid.x86() == cpu.features() & known


# ---- cores (F1, F2, F3 of the bug collection)


def test_threads_are_physical_cores_not_siblings(machine):
    machine.cores([[0, 4], [1, 5], [2, 6], [3, 7]])

    assert machine.threads(range(8)) == 4
    assert cpu.cores(str(machine.folder), {4, 5, 6}).performance == (4, 5, 6)


def test_threads_stay_inside_the_affinity_mask(machine):
    machine.cores([[i] for i in range(16)])

    assert machine.threads({3, 7, 9}) == 3


def test_threads_without_topology_are_the_allowed_cpus(machine):
    assert machine.threads(range(6)) == 6


def test_hybrid_cpu_counts_performance_cores(machine):
    machine.cores([[0, 1], [2, 3], [4], [5], [6], [7]])
    machine.file("sys/devices/cpu_core/cpus", "0-3\n").file("sys/devices/cpu_atom/cpus", "4-7\n")

    assert machine.threads(range(8)) == 2
    assert machine.threads({4, 5, 6}) == 3


def test_hybrid_cpu_without_smt_uses_all_performance_cores(machine):
    machine.cores([[i] for i in range(20)])
    for i in range(20):
        top = 5400000 if i < 8 else 4000000
        machine.file(f"sys/devices/system/cpu/cpu{i}/cpufreq/cpuinfo_max_freq", f"{top}\n")

    assert machine.threads(range(20)) == 8


def test_favoured_cores_do_not_make_a_class_of_their_own(machine):
    machine.cores([[i] for i in range(4)])
    for i, top in enumerate([5700000, 5700000, 5450000, 5300000]):
        machine.file(f"sys/devices/system/cpu/cpu{i}/cpufreq/cpuinfo_max_freq", f"{top}\n")

    assert machine.threads(range(4)) == 4


def test_arm_capacities_choose_the_big_cores(machine):
    machine.cores([[i] for i in range(8)])
    for i in range(8):
        capacity = 1024 if i >= 4 else 400
        machine.file(f"sys/devices/system/cpu/cpu{i}/cpu_capacity", f"{capacity}\n")

    assert machine.threads(range(8)) == 4


@pytest.mark.parametrize(
    ("limit", "threads"),
    [
        ("max 100000", 16),
        ("200000 100000", 2),
        ("765000 100000", 8),
        ("720000 100000", 7),
        ("150000 100000", 2),
        ("125000 100000", 2),
        ("110000 100000", 1),
        ("50000 100000", 1),
        ("1000 100000", 1),
    ],
)
def test_a_quota_feeds_whole_threads_and_one_more_from_a_quarter_on(machine, limit, threads):
    machine.v2().file("sys/fs/cgroup/cpu.max", limit + "\n")

    assert machine.threads(range(16)) == threads


def test_quota_of_version_1_counts(machine):
    machine.v1("/docker/a1", "/docker/a1")
    machine.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "310000\n")
    machine.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")

    assert machine.threads(range(16)) == 3


def test_version_1_without_quota_sets_no_limit(machine):
    machine.v1()
    machine.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    machine.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")

    assert machine.threads(range(5)) == 5


def test_the_tightest_nested_group_counts(machine):
    machine.v2("/user.slice/job.scope")
    machine.file("sys/fs/cgroup/user.slice/job.scope/cpu.max", "max 100000\n")
    machine.file("sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n")

    assert machine.threads(range(16)) == 3


def test_a_container_that_sees_only_its_own_tree_finds_its_quota(machine):
    machine.v2("/../../kubepods/pod1/c1").file("sys/fs/cgroup/cpu.max", "200000 100000\n")

    assert machine.threads(range(16)) == 2


@pytest.mark.parametrize(
    ("quota", "affinity", "siblings", "rule", "words"),
    [
        ("150000 100000", 4, False, "quota", "the control group grants 1.50 CPUs"),
        ("800000 100000", 4, False, "affinity", "4 of 8 CPUs are allowed"),
        ("max 100000", 4, True, "affinity", "4 of 8 CPUs are allowed, 2 fast cores"),
        ("max 100000", 8, True, "cores", "4 fast cores, one thread each, of 8 CPUs"),
        ("max 100000", 8, False, "all", "every CPU is a fast core of its own"),
    ],
)
def test_what_decided_the_count_is_told(machine, quota, affinity, siblings, rule, words):
    machine.v2().file("sys/fs/cgroup/cpu.max", quota)
    machine.cores([[0, 1], [2, 3], [4, 5], [6, 7]] if siblings else [[i] for i in range(8)])
    machine.file("sys/devices/system/cpu/online", "0-7\n")

    assert cpu.cores(str(machine.folder), set(range(affinity))).rule == (rule, words)


def test_a_torn_quota_file_sets_no_limit(machine):
    machine.v2().file("sys/fs/cgroup/cpu.max", "banana")

    assert machine.threads(range(4)) == 4


# ---- caches and memory


def test_caches_come_from_sysfs(machine):
    base = "sys/devices/system/cpu/cpu0/cache"
    rows = [(0, "Data", "48K", 1, "0"), (1, "Instruction", "32K", 1, "0"),
            (2, "Unified", "2048K", 2, "0-1"), (3, "Unified", "30M", 3, "0-15")]  # fmt: skip
    for i, kind, size, level, shared in rows:
        facts = {"type": kind, "size": size, "level": level, "shared_cpu_list": shared}
        for name, value in facts.items():
            machine.file(f"{base}/index{i}/{name}", f"{value}\n")

    found = [(c.level, c.size_bytes, c.shared_by) for c in cpu.caches(str(machine.folder))]

    assert found == [(1, 48 << 10, 1), (2, 2 << 20, 2), (3, 30 << 20, 16)]


def test_memory_is_bounded_by_the_control_group(machine):
    machine.meminfo(64 << 20, 60 << 20).v2("/job")
    machine.file("sys/fs/cgroup/job/memory.max", f"{8 << 30}\n")
    machine.file("sys/fs/cgroup/job/memory.current", f"{3 << 30}\n")
    machine.file("sys/fs/cgroup/job/memory.stat", f"anon 5\ninactive_file {1 << 30}\n")

    m = cpu.memory(str(machine.folder))

    assert (m.total_bytes, m.limit_bytes, m.available_bytes) == (64 << 30, 8 << 30, 6 << 30)


def test_memory_of_version_1_without_limit_is_the_machine(machine):
    machine.meminfo(16 << 20, 10 << 20).v1()
    machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")

    m = cpu.memory(str(machine.folder))

    assert (m.limit_bytes, m.available_bytes) == (None, 10 << 30)


def test_memory_never_goes_below_zero(machine):
    machine.meminfo(16 << 20, 10 << 20).v2()
    machine.file("sys/fs/cgroup/memory.max", "1000\n")
    machine.file("sys/fs/cgroup/memory.current", "5000\n")

    assert cpu.memory(str(machine.folder)).available_bytes == 0


def test_this_machine_has_threads_and_memory():
    assert 1 <= cpu.cores().threads <= len(cpu.cores().allowed)
    assert 0 < cpu.memory().available_bytes <= cpu.memory().total_bytes


def test_the_modules_import_nothing_heavy():
    code = (
        "import sys, types; p = types.ModuleType('quant'); p.__path__ = sys.argv[1:]\n"
        "sys.modules['quant'] = p; import quant.cpu\n"
        "quant.cpu.isa(); quant.cpu.cores().threads; quant.cpu.memory()\n"
        "print([m for m in ('numpy', 'numba', 'llvmlite', 'typing', 'dataclasses', 'ctypes') if m in sys.modules])"
    )
    folder = cpu.__file__.rpartition("cpu.py")[0]

    run = subprocess.run([sys.executable, "-S", "-c", code, folder], capture_output=True, text=True)

    assert run.stdout.strip() == "[]", run.stderr
