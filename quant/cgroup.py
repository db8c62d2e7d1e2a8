"""Limits of the control groups that this process is in, versions 1 and 2, nested.

A limit holds if any group from the process's own up to the root of the mounted tree sets it, so all
of them are read and the tightest counts. What cannot be read sets no limit. Linux only.
"""

from __future__ import annotations

import os

# Version 1 says "no limit" with the largest multiple of a page that fits in 63 bits.
_NO_LIMIT = 1 << 60


def read(path: str) -> str:
    """A small file's text, "" when it is not there or may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def folders(root: str, controller: str) -> list[tuple[int, str]]:
    """(version, folder) of every group that limits `controller` for us, our own first."""
    found = []
    for version, group in _groups(root, controller):
        for mount_root, mount_point in _mounts(root, version, controller):
            inside = _below(group, mount_root)
            if inside is None:
                # A container sees its own tree only, while /proc names the host's path.
                inside = ""
            top = os.path.join(root, mount_point.lstrip("/"))
            parts = [part for part in inside.split("/") if part]
            found += [(version, os.path.join(top, *parts[:n])) for n in range(len(parts), -1, -1)]
    return found


def cpu_quota(root: str = "/") -> float | None:
    """CPUs' worth of time per period that the tightest group grants; None without a limit."""
    quotas = []
    for version, folder in folders(root, "cpu"):
        if version == 2:
            fields = read(f"{folder}/cpu.max").split()
        else:
            fields = [read(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[1]):
            quotas.append(int(fields[0]) / int(fields[1]))
    return min(quotas, default=None)


def memory_limits(root: str = "/") -> list[tuple[int, int]]:
    """(limit, used) in bytes of every group with a limit; file cache that can go is not used."""
    found = []
    for version, folder in folders(root, "memory"):
        if version == 2:
            # Above memory.high a group is slowed down until it is of no use to us.
            texts = [read(f"{folder}/{name}") for name in ("memory.max", "memory.high")]
            used, cache = read(f"{folder}/memory.current"), "inactive_file"
        else:
            texts = [read(f"{folder}/memory.limit_in_bytes")]
            used, cache = read(f"{folder}/memory.usage_in_bytes"), "total_inactive_file"
        limits = [int(text) for text in texts if text.strip().isdigit()]
        if limits and min(limits) < _NO_LIMIT:
            taken = int(used) if used.strip().isdigit() else 0
            found.append((min(limits), max(0, taken - _stat(folder, cache))))
    return found


def address_space() -> list[tuple[int, int]]:
    """(limit, used) of `ulimit -v`, as a list of none or one."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return []
    pages = read("/proc/self/statm").split()[:1]
    return [(soft, int(pages[0]) * resource.getpagesize() if pages else 0)]


def _stat(folder: str, name: str) -> int:
    for line in read(f"{folder}/memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0


def _groups(root: str, controller: str) -> list[tuple[int, str]]:
    """(version, path) of our groups from /proc/self/cgroup."""
    found = []
    for line in read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found.append((2, path))
        elif controller in controllers.split(","):
            found.append((1, path))
    return found


def _mounts(root: str, version: int, controller: str) -> list[tuple[str, str]]:
    """(root of the mount inside the hierarchy, mount point) from /proc/self/mountinfo."""
    found = []
    for line in read(os.path.join(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, system = before.split(), after.split()
        if len(fields) < 5 or len(system) < 3:
            continue
        v2 = version == 2 and system[0] == "cgroup2"
        v1 = version == 1 and system[0] == "cgroup" and controller in system[2].split(",")
        if v1 or v2:
            found.append((_unescape(fields[3]), _unescape(fields[4])))
    return found


def _below(path: str, top: str) -> str | None:
    """`path` relative to `top`, None when it is not inside."""
    if top == "/":
        return None if "/.." in path else path
    if path == top or path.startswith(f"{top}/"):
        return path[len(top) :]
    return None


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
