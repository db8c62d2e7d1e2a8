"""Kernels of this machine for the tests of `quant`."""

import os

import pytest

from quant import activations, cpu, decoding_kernels, gemm_float, gemm_panel, gemm_stream, jit
from quant.link import callable_at
from quant.types import TYPES

ALL = bool(os.environ.get("GGUF_RUNTIME_ALL_KERNELS"))
# One type for every way to store codes and minima: what lower instruction sets show in a16.
A16_BELOW_BEST = ("Q4_1", "Q5_0", "Q8_0", "Q5_K", "Q6_K")


def formats_of(t, isa):
    """Activation formats that the tests run for a type on an instruction set."""
    if t.kind == "float":
        return ("",)
    every = ALL or isa == cpu.exact()[-1] or t.name in A16_BELOW_BEST
    return ("a8", "a16") if every else ("a8",)


def bodies_of(t, fmt):
    """Specs of every body that multiplies by this type."""
    if t.kind == "float":
        return [gemm_float.floats.spec(t.name, shape) for shape in ("one", "many")]
    streams = [gemm_stream.stream.spec(t.name, fmt, n) for n in ("one", "few")]
    return [*streams, gemm_panel.panel.spec(t.name, fmt)]


@pytest.fixture(scope="session")
def kernels():
    """A function from an instruction set to its kernels, compiled once, callable by spec."""
    loaded = {}

    def of(isa):
        if isa not in loaded:
            specs = [activations.quantize.spec(fmt) for fmt in ("a8", "a16")]
            for t in TYPES.values():
                specs.append(decoding_kernels.decode_row.spec(t.name))
                for fmt in formats_of(t, isa):
                    specs += bodies_of(t, fmt)
            found = jit.load(specs, isa=isa, fallback=False)
            loaded[isa] = {spec: callable_at(address) for spec, address in found.items()}
        return loaded[isa]

    return of


@pytest.fixture(scope="session")
def bodies(kernels):
    """bodies(isa, t): (activation format, name, kernel) for each body that the tests run."""

    def of(isa, t):
        found = kernels(isa)
        return [
            (fmt, f"{spec.symbol} on {isa}", found[spec])
            for fmt in formats_of(t, isa)
            for spec in bodies_of(t, fmt)
        ]

    return of
