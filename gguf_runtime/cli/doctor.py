"""`doctor`: what this machine is, what was chosen, and why."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Annotated, Any

import typer

from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.cli.version import version
from gguf_runtime.errors import ExitCode
from gguf_runtime.hub.catalog import entries
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.resolve import models_in, size

PACKAGES = ("numpy", "numba", "llvmlite", "jinja2", "typer", "rich", "platformdirs")
LABEL = 12


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="output", help="one JSON object")
    ] = False,
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest",
            rich_help_panel="machine",
            help="run every kernel variant of this CPU against numpy; code 6 when one differs",
        ),
    ] = False,
) -> ExitCode:
    """What this machine is, what was chosen, and why: the first thing to add to a bug report.

    Ends with code 4 when no kernels can run here, with 2 when GGUF_RUNTIME_ISA asks for others.
    """
    terminal = current()
    facts = examine()
    if selftest:
        facts["selftest"] = _selftest(terminal, facts["isa"]["can"])
    if as_json:
        terminal.line(dumps({"schema_version": 1, **facts}))
    else:
        for label, text in _words(facts):
            terminal.line(f"{label:<{LABEL}}{text}")
    if selftest and facts["selftest"]["differences"]:
        return ExitCode.NOT_CLEAN
    if facts["isa"]["chosen"] is not None:
        return ExitCode.DONE
    return ExitCode.USAGE if facts["isa"]["can"] else ExitCode.MACHINE


def examine() -> dict[str, Any]:
    """All facts, as `--json` prints them."""
    from quant import cpu

    cores, memory = cpu.cores(), cpu.memory()
    asked = os.environ.get("GGUF_RUNTIME_THREADS")
    return {
        "version": version(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "isa": _isa(),
        "cores": {
            "allowed": len(cores.allowed),
            "performance": len(cores.performance),
            "quota": cores.quota,
        },
        "threads": {
            "default": int(asked) if asked and asked.isdigit() else cores.threads,
            "from": "GGUF_RUNTIME_THREADS" if asked else "this machine",
        },
        "caches": [
            {"level": c.level, "size_bytes": c.size_bytes, "shared_by": c.shared_by}
            for c in cpu.caches()
        ],
        "memory": {
            "total_bytes": memory.total_bytes,
            "limit_bytes": memory.limit_bytes,
            "available_bytes": memory.available_bytes,
        },
        "kernels": _kernels(),
        "models": _models(),
    }


def _selftest(terminal: Terminal, can: list[str]) -> dict[str, Any]:
    from gguf_runtime.cli.kernels import differences, variants

    specs = variants()
    found = [line for isa in can for line in differences(specs, isa, terminal.progress)]
    terminal.clear()
    return {"kernels": sum(bool(s.check) for s in specs) * len(can), "differences": found}


def _isa() -> dict[str, Any]:
    from quant import cpu
    from quant.errors import QuantError

    asked = os.environ.get("GGUF_RUNTIME_ISA") or None
    can = list(cpu.supported())
    facts: dict[str, Any] = {"chosen": None, "can": can, "asked": asked, "why": ""}
    try:
        facts["chosen"] = cpu.isa()
        facts["why"] = (
            "GGUF_RUNTIME_ISA asks for it" if asked else "the best that this CPU has kernels for"
        )
    except QuantError as e:
        facts["why"] = e.what
    return facts


def _kernels() -> dict[str, Any]:
    from quant.objects import Store, default_base

    told: list[str] = []
    folder = Store(default_base(), lambda code, message: told.append(message)).folder
    found: list[os.DirEntry[str]] = []
    if folder is not None and os.path.isdir(folder):
        with os.scandir(folder) as listed:
            found = [f for f in listed if f.name.endswith(".o")]
    return {
        "folder": folder,
        "objects": len(found),
        "size_bytes": sum(f.stat().st_size for f in found),
        "writable": folder is not None and _writable(folder),
    }


def _models() -> dict[str, Any]:
    folder = models_dir()
    known = {e.file for e in entries().values()}
    others = models_in(folder) if folder.is_dir() else []
    return {
        "folder": str(folder),
        "present": [e.name for e in entries().values() if e.present]
        + [p.stem for p in others if p.name not in known],
    }


def _words(f: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "program", f"gguf-runtime {f['version']}, Python {f['python']}, {sys.executable}"
    yield "packages", ", ".join(f"{k} {v or 'missing'}" for k, v in f["packages"].items())
    yield "system", f"{f['system']}, {f['machine']}, {f['cpu']}"
    isa = f["isa"]
    yield "isa", f"{isa['chosen'] or 'none'}: {isa['why']}"
    yield "", f"can run: {', '.join(isa['can']) or 'none'}"
    c = f["cores"]
    quota = f", {c['quota']:.2f} CPUs granted by the control group" if c["quota"] else ""
    yield "cores", f"{c['allowed']} allowed, {c['performance']} fast ones{quota}"
    yield "threads", f"{f['threads']['default']}, from {f['threads']['from']}"
    if f["caches"]:
        yield "caches", ", ".join(f"L{x['level']} {_kib(x['size_bytes'])}" for x in f["caches"])
    m = f["memory"]
    limit = f", limit {size(m['limit_bytes'])}" if m["limit_bytes"] else ""
    yield "memory", f"{size(m['available_bytes'])} free of {size(m['total_bytes'])}{limit}"
    k = f["kernels"]
    state = "" if k["writable"] else ", not writable: kernels are compiled on every start"
    yield "kernels", f"{k['objects']} compiled, {size(k['size_bytes'])}, in {k['folder']}{state}"
    if "selftest" in f:
        t = f["selftest"]
        yield "selftest", f"{t['kernels']} kernels, {len(t['differences'])} differ from numpy"
        yield from (("", line) for line in t["differences"])
    yield "models", f"{', '.join(f['models']['present']) or 'none'}, in {f['models']['folder']}"


def _cpu_name() -> str:
    finders: list[Callable[[], str]] = [_cpuinfo_name, platform.processor]
    return next((name for find in finders if (name := find())), "unknown CPU")


def _cpuinfo_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        return ""
    return ""


def _writable(folder: str) -> bool:
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kib(n_bytes: int) -> str:
    return f"{n_bytes >> 20} MiB" if n_bytes >= 1 << 20 else f"{n_bytes >> 10} KiB"
