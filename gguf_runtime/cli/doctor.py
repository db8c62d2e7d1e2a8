"""`doctor`: what this machine is, what was chosen, and why."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gguf_runtime.cli import stores
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.cli.version import version
from gguf_runtime.errors import ExitCode
from gguf_runtime.hub.catalog import entries
from gguf_runtime.hub.places import models_dir
from gguf_runtime.hub.resolve import models_in, size

if TYPE_CHECKING:
    from quant.cpu import Cores

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

    Memory, integer units and the hand-over between threads are measured on the spot, in about a second.
    Ends with code 4 when no kernels can run here, with 2 when GGUF_RUNTIME_ISA asks for others.
    """
    terminal = current()
    facts = examine()
    if facts["isa"]["chosen"] is not None:
        facts["measured"] = _measured(terminal, facts["threads"]["default"])
    if selftest:
        facts["selftest"] = _selftest(terminal)
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
        "threads": _threads(cores, asked),
        "caches": [
            {"level": c.level, "size_bytes": c.size_bytes, "shared_by": c.shared_by}
            for c in cpu.caches()
        ],
        "memory": {
            "total_bytes": memory.total_bytes,
            "limit_bytes": memory.limit_bytes,
            "available_bytes": memory.available_bytes,
        },
        "kernels": stores.kernels(),
        "packs": stores.packs(),
        "targets": _targets(),
        "models": _models(),
    }


def _threads(cores: Cores, asked: str | None) -> dict[str, Any]:
    if asked and asked.isdigit():
        name = "GGUF_RUNTIME_THREADS"
        return {"default": int(asked), "from": name, "rule": name, "why": f"{name} asks for it"}
    rule, why = cores.rule
    return {"default": cores.threads, "from": "this machine", "rule": rule, "why": why}


def _targets() -> dict[str, Any]:
    """Machines that `warmup --target` compiles for, with their instruction sets."""
    from quant import targets

    return {name: list(targets.machine(name).isas) for name in targets.systems()}


def _measured(terminal: Terminal, threads: int) -> dict[str, Any]:
    """What memory, registers and threads can do, now; the reason where kernels cannot be had."""
    from quant import handover, jit, roofs
    from quant.errors import QuantError
    from quant.pool import Pool
    from quant.pool_kernels import SPECS as RUNNER

    def compiling(done: int, total: int, name: str) -> None:
        terminal.progress("compiling kernels", done, total)

    try:
        kernels = jit.load((*RUNNER, *roofs.SPECS, *handover.SPECS), progress=compiling)
        terminal.clear()
        pool = Pool(threads, kernels)
        try:
            found, row_s = roofs.measure(pool), handover.measure(pool)
        finally:
            pool.close()
    except (QuantError, MemoryError) as e:
        terminal.clear()
        return {"error": e.what if isinstance(e, QuantError) else "not enough memory"}
    return {
        "threads": threads,
        "bytes_per_s": round(found.read),
        "macs_per_s": {kind: round(x) for kind, x in found.peaks.items()},
        "handover_s": row_s,
    }


def _selftest(terminal: Terminal) -> dict[str, Any]:
    """Bits of every kernel; without fma results are near, not equal, so those are left out."""
    from gguf_runtime.cli.kernels import differences, variants
    from quant import cpu

    specs, isas = variants(), cpu.exact()
    found = [line for isa in isas for line in differences(specs, isa, terminal.progress)]
    terminal.clear()
    count = sum(bool(s.check) for s in specs) * len(isas)
    return {"kernels": count, "isas": list(isas), "differences": found}


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
    yield "threads", f"{f['threads']['default']}: {f['threads']['why']}"
    if f["caches"]:
        yield "caches", ", ".join(f"L{x['level']} {_kib(x['size_bytes'])}" for x in f["caches"])
    m = f["memory"]
    limit = f", limit {size(m['limit_bytes'])}" if m["limit_bytes"] else ""
    yield "memory", f"{size(m['available_bytes'])} free of {size(m['total_bytes'])}{limit}"
    yield from _speeds(f.get("measured"))
    yield from stores.words(f["kernels"], f["packs"])
    if "selftest" in f:
        t = f["selftest"]
        sets = ", ".join(t["isas"]) or "none: without fma no bits are promised"
        yield (
            "selftest",
            f"{t['kernels']} kernels ({sets}), {len(t['differences'])} differ from numpy",
        )
        yield from (("", line) for line in t["differences"])
    names = [f"{name} ({', '.join(isas)})" for name, isas in f["targets"].items()]
    yield "targets", "gg warmup --target NAME -o kernels.bin compiles for"
    yield from (("", name) for name in names)
    yield "models", f"{', '.join(f['models']['present']) or 'none'}, in {f['models']['folder']}"


def _speeds(m: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if m is None:
        return
    if "error" in m:
        yield "measured", f"nothing: {m['error']}"
        return
    peaks = m["macs_per_s"]
    yield "measured", f"{m['bytes_per_s'] / 1e9:.1f} GB/s read, with {m['threads']} threads"
    yield "", f"dot products {peaks['dot'] / 1e9:,.0f} GMAC/s, floats {peaks['fma'] / 1e9:,.0f}"
    yield "", f"{m['handover_s'] * 1e6:.2f} us from one row of a step to the next"


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


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kib(n_bytes: int) -> str:
    return f"{n_bytes >> 20} MiB" if n_bytes >= 1 << 20 else f"{n_bytes >> 10} KiB"
