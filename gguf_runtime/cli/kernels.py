"""Every kernel variant of this program: for `warmup` without a model and for `doctor --selftest`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quant.jit import Spec

Progress = Callable[[str, int, int], None]

FORMATS = ("f32", "a8", "a16")
CACHES = ("f16", "f32", "q8_0")


def variants() -> list[Spec]:
    """All kernels with all their parameters."""
    from gguf_runtime.engine.sampler import SPECS as SAMPLER
    from gguf_runtime.kernels import act, attention, gate, norm, plain, rope, strings
    from quant import decoding_kernels, handover, packing_kernels, roofs, selftest
    from quant.pool_kernels import SPECS as RUNNER
    from quant.types import TYPES

    found = [*RUNNER, *strings.SPECS, *selftest.specs(), *SAMPLER, attention.merge.spec()]
    found += [
        *roofs.SPECS,
        *handover.SPECS,
        *(packing_kernels.pack_strip.spec(name) for name in TYPES),
    ]
    found += [decoding_kernels.decode_row.spec(name) for name in TYPES]
    found += [norm.rms_norm.spec(*p) for p in product(("plain", "post"), FORMATS)]
    found += [act.gate_act.spec(*p) for p in product(("silu", "gelu", "none"), FORMATS)]
    found += [gate.gated_matmul.spec(*p) for p in product(("silu", "gelu"), FORMATS)]
    found += [rope.rope_store.spec(*p) for p in product(("norm", "neox"), CACHES)]
    found += [attention.attention.spec(c) for c in CACHES]
    found += [plain.rowwise.spec(op) for op in ("add", "scale", "copy")]
    return found


def differences(specs: list[Spec], isa: str, progress: Progress) -> list[str]:
    """Run the kernels of an instruction set against numpy; what differs, one line each."""
    from quant import jit
    from quant.link import callable_at

    def compiling(done: int, total: int, name: str) -> None:
        progress(f"compiling kernels for {isa}", done, total)

    loaded = jit.load(specs, isa, progress=compiling, fallback=False)
    checked = [s for s in specs if s.check]
    found = []
    for i, spec in enumerate(checked):
        progress(f"checking kernels of {isa}", i, len(checked))
        complaint = _check(spec)(callable_at(loaded[spec]), isa, *spec.params)
        if complaint:
            found.append(f"{isa}: {spec.symbol}: {complaint}")
    progress(f"checking kernels of {isa}", len(checked), len(checked))
    return found


def _check(spec: Spec) -> Callable[..., str | None]:
    """The check that a spec names: in its own module, or by a dotted name."""
    module, _, name = spec.check.rpartition(".")
    found: Callable[..., str | None] = getattr(importlib.import_module(module or spec.module), name)
    return found
