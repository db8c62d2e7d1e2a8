"""Kernels of every instruction set that this machine can run, compiled once."""

import os

import pytest

from gguf_runtime.kernels import (
    act,
    attention,
    attention_checks,
    checks,
    norm,
    rope,
    sample,
    sample_checks,
)
from quant import cpu, jit
from quant.link import callable_at

ALL = bool(os.environ.get("GGUF_RUNTIME_ALL_KERNELS"))
FORMATS, CACHES = ("f32", "a8", "a16"), ("f16", "f32", "q8_0")

# (spec, its check)
EVERY = [
    *(
        (norm.rms_norm.spec(f, fmt), checks.check_norm)
        for f in ("plain", "post")
        for fmt in FORMATS
    ),
    *((act.gate_act.spec(f, fmt), checks.check_act) for f in ("silu", "gelu") for fmt in FORMATS),
    (act.gate_act.spec("none", "a8"), checks.check_act),
    *((rope.rope_store.spec(k, c), checks.check_rope) for k in ("norm", "neox") for c in CACHES),
    *((attention.attention.spec(c), attention_checks.check_attention) for c in CACHES),
    (attention.merge.spec(), attention_checks.check_merge),
    (sample.scan.spec(), sample_checks.check_scan),
    (sample.pick.spec(), sample_checks.check_pick),
]
# What lower instruction sets show, unless GGUF_RUNTIME_ALL_KERNELS asks for everything: one of each loop.
SOME = {
    norm.rms_norm.spec("post", "a8"),
    act.gate_act.spec("silu", "a8"),
    act.gate_act.spec("gelu", "f32"),
    rope.rope_store.spec("norm", "f16"),
    rope.rope_store.spec("neox", "q8_0"),
    attention.attention.spec("f16"),
    attention.attention.spec("q8_0"),
    attention.merge.spec(),
    sample.scan.spec(),
    sample.pick.spec(),
}


def specs_of(isa):
    """(spec, check) pairs that the tests run on an instruction set."""
    everything = ALL or isa == cpu.exact()[-1]
    return [(s, check) for s, check in EVERY if everything or s in SOME]


@pytest.fixture(scope="session")
def kernels():
    """A function from an instruction set to its kernels, callable by spec."""
    loaded = {}

    def of(isa):
        if isa not in loaded:
            found = jit.load([s for s, _ in specs_of(isa)], isa=isa, fallback=False)
            loaded[isa] = {spec: callable_at(address) for spec, address in found.items()}
        return loaded[isa]

    return of
