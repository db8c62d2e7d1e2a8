"""Kernel calls: what a row of a plan becomes, one or several, with addresses filled in.

Nearly everything in a call is fixed when a model is loaded. What follows the size of the batch is
marked `Times`, so that one pass over a list sets it; which of a matmul's bodies runs follows the
number of columns.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gguf_runtime.graph.rows import Counts
from quant.jit import Spec
from quant.linear import FEW

Size = Literal["one", "few", "many"]
SIZES: tuple[Size, ...] = ("one", "few", "many")


def size_of(n: int) -> Size:
    """Which body of a matmul suits n columns."""
    return "one" if n <= 1 else "few" if n <= FEW else "many"


@dataclass(frozen=True, slots=True)
class Times:
    """A value that is `factor` times the tokens or outputs of the step."""

    counts: Counts
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks of attention kind `kind`: "items", or "merges" times the heads of a token."""

    what: Literal["items", "merges"]
    kind: int
    factor: int = 1


Value = int | float | Times
Tasks = int | Times | Work


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call reads and computes at least, for profiles.

    peak                  of `quant.roofs.PEAKS`: what its multiply-adds are limited by
    weights               the type of the weights it reads
    n_bytes, n_macs       weights read by one pass; multiply-adds of one column
    planes                bytes of an activation's code: so many multiplications each
    key_bytes, key_macs   of attention: per position that is read, and per pair of token and position
    window                positions that a token sees; 0: all before it
    """

    peak: str
    weights: str = ""
    n_bytes: int = 0
    n_macs: int = 0
    planes: int = 1
    key_bytes: int = 0
    key_macs: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel over a range of tasks.

    specs      the kernel for one, few and many columns
    args       the values of its slots
    tasks      how many, or what they follow
    counts     whether it works on tokens or on outputs
    costs      of its matrices or its attention; none where neither is
    inner      calls whose kernels and arguments this kernel is given (`gate_fn`, `gate_args`, …)
    kind       of attention: whose items and merges it works on
    """

    name: str
    op: str
    specs: tuple[Spec, Spec, Spec]
    args: tuple[Value, ...]
    tasks: Tasks
    counts: Counts
    costs: tuple[Cost, ...] = ()
    inner: tuple[Call, ...] = ()
    kind: int = -1


@dataclass(frozen=True, slots=True)
class Together:
    """Calls that share a range of tasks, so that they run side by side."""

    name: str
    calls: tuple[Call, ...]


def same(spec: Spec) -> tuple[Spec, Spec, Spec]:
    """A kernel that does not care about the number of columns."""
    return spec, spec, spec


def slots(names: Sequence[str], **values: Value) -> tuple[Value, ...]:
    """Values in the order of a kernel's ARGS; those not given are 0."""
    unknown = set(values) - set(names)
    assert not unknown, unknown
    return tuple(values.get(name, 0) for name in names)


def word(value: int | float) -> int:
    """An int64 that holds an integer, or the bits of a float64."""
    if isinstance(value, float):
        bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
        return bits
    return value
