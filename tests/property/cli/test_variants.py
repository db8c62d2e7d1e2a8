"""`doctor --selftest` and `warmup` leave no kernel out."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import gguf_runtime.kernels
import quant
from gguf_runtime.cli.kernels import differences, variants
from quant import cpu
from quant.jit import Factory


def factories() -> set[tuple[str, str]]:
    """(module, name) of everything marked with `@kernel`."""
    found = set()
    for package in (quant, gguf_runtime.kernels):
        for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if info.ispkg or info.name in ("quant.selftest",):
                continue
            module = import_module(info.name)
            found |= {
                (x.function.__module__, x.__name__)
                for x in vars(module).values()
                if isinstance(x, Factory)
            }
    return found


def test_every_kernel_has_its_variants():
    specs = variants()
    assert {(s.module, s.factory) for s in specs} == factories()
    assert len({s.symbol for s in specs}) == len(specs)


def test_a_selftest_runs_kernels_against_numpy():
    specs = [s for s in variants() if s.factory in ("merge", "quantize")]
    seen = []
    assert differences(specs, cpu.isa(), lambda *x: seen.append(x)) == []
    assert seen[-1][1:] == (3, 3)
