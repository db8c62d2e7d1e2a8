"""What a plan consists of: rows, in the order in which they run, and the buffers between them.

A buffer holds one line per token, or one per token that wants logits ("outputs", in the order of
their tokens). Its format says what a line is:
    f32       `width` floats
    a8, a16   `width` values quantized for a matmul, as the arithmetic contract says
    spans     what attention leaves of every span of 512 positions: maximum, sum, `width` floats
A row reads and writes whole buffers. Where `in_place` names a pair, both may be the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from gguf_runtime.graph.nodes import Act
from gguf_runtime.graph.rope import Rope
from gguf_runtime.graph.weights import Weight

Counts = Literal["tokens", "outputs"]
Format = Literal["f32", "a8", "a16", "spans"]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """`width` values per line in one format; `id` counts the buffers of a plan."""

    id: int
    format: Format
    width: int
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One step of the plan: a kernel over `counts` tokens.

    name  for people: layer and tensors, such as "blk.3 attn_q attn_k attn_v"
    """

    op: ClassVar[str]
    OUTPUTS: ClassVar[tuple[str, ...]] = ("out", "act")

    name: str
    counts: Counts

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Buffers that this row writes."""
        return tuple(b for name, b in _buffers(self) if name in self.OUTPUTS)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that this row reads."""
        return tuple(b for name, b in _buffers(self) if name not in self.OUTPUTS)

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Pairs (written, read) that may be the same memory."""
        return ()


def _buffers(item: Row | Part) -> Iterator[tuple[str, Buffer]]:
    for name in item.__match_args__:
        value = getattr(item, name)
        if isinstance(value, Buffer):
            yield name, value
        elif isinstance(value, Part):
            yield from _buffers(value)
        elif isinstance(value, tuple):
            for part in value:
                yield from _buffers(part)


@dataclass(frozen=True, slots=True, eq=False)
class EmbedRow(Row):
    """out = factor * the embedding's row of each id."""

    op = "embed"
    out: Buffer
    weight: Weight
    factor: float


@dataclass(frozen=True, slots=True, eq=False)
class NormRow(Row):
    """RMS norm into floats, a matmul's format, or both; before it, if there is a post norm, a residual.

    With y: x_out = x + rms_norm(y) * post, and x_out takes the place of x below; x_out may be all.
    out, act = rms_norm(x) * weight, over groups of `weight.k` values.
    """

    op = "norm"
    OUTPUTS = ("out", "act", "x_out")
    x: Buffer
    weight: Weight
    eps: float
    out: Buffer | None = None
    act: Buffer | None = None
    y: Buffer | None = None
    post: Weight | None = None
    post_eps: float = 0.0
    x_out: Buffer | None = None

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """The residual stream."""
        return () if self.x_out is None else ((self.x_out, self.x),)


@dataclass(frozen=True, slots=True, eq=False)
class QuantizeRow(Row):
    """act = x in a matmul's format."""

    op = "quantize"
    x: Buffer
    act: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One matrix of a row: out = x @ weight.T (+ bias) (+ resid), added in this order.

    x is f32 for float weights, a8 or a16 for quantized ones.
    """

    x: Buffer
    weight: Weight
    bias: Weight | None
    resid: Buffer | None
    out: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class MatmulRow(Row):
    """Matrices that can be worked on at the same time, of one type or several."""

    op = "matmul"
    parts: tuple[Part, ...]

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Sums into the residual stream."""
        return tuple((p.out, p.resid) for p in self.parts if p.resid is not None)


@dataclass(frozen=True, slots=True, eq=False)
class GateRow(Row):
    """out, act = function(x @ gate.T) * (x @ up.T), biases included; both matrices of one type."""

    op = "gate"
    x: Buffer
    gate: Weight
    gate_bias: Weight | None
    up: Weight
    up_bias: Weight | None
    function: Act
    out: Buffer | None = None
    act: Buffer | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ActRow(Row):
    """out, act = function(gate) * up."""

    op = "act"
    gate: Buffer
    up: Buffer
    function: Act
    out: Buffer | None = None
    act: Buffer | None = None

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Floats may take the place of the gate."""
        return () if self.out is None else ((self.out, self.gate),)


@dataclass(frozen=True, slots=True, eq=False)
class RotateRow(Row):
    """out = every head of x turned by its position."""

    op = "rotate"
    x: Buffer
    out: Buffer
    rope: Rope

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Heads are turned where they are."""
        return ((self.out, self.x),)


@dataclass(frozen=True, slots=True, eq=False)
class StoreRow(Row):
    """Queries and keys normed per head and turned, each where given; keys and values into pages.

    q and out are None where nothing is to be done to the queries.
    """

    op = "store"
    k: Buffer
    v: Buffer
    layer: int
    head_dim: int
    n_head_kv: int
    q: Buffer | None = None
    out: Buffer | None = None
    q_norm: Weight | None = None
    k_norm: Weight | None = None
    eps: float = 0.0
    q_rope: Rope | None = None
    k_rope: Rope | None = None

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Queries are turned where they are."""
        return () if self.q is None or self.out is None else ((self.out, self.q),)


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRow(Row):
    """out (spans) = attention of each query over its sequence's pages, span by span.

    window  a query at p sees p - window + 1 … p; 0 is no window
    """

    op = "attention"
    q: Buffer
    out: Buffer
    layer: int
    scale: float
    window: int
    n_head: int
    n_head_kv: int
    head_dim: int


@dataclass(frozen=True, slots=True, eq=False)
class MergeRow(Row):
    """out, act = the spans of every query merged in ascending order; `gather`: of outputs alone."""

    op = "merge"
    spans: Buffer
    n_head: int
    head_dim: int
    gather: bool
    out: Buffer | None = None
    act: Buffer | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AddRow(Row):
    """out = a + b."""

    op = "add"
    a: Buffer
    b: Buffer
    out: Buffer

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """The residual stream."""
        return ((self.out, self.a), (self.out, self.b))


@dataclass(frozen=True, slots=True, eq=False)
class ScaleRow(Row):
    """out = factor * x."""

    op = "scale"
    x: Buffer
    out: Buffer
    factor: float

    @property
    def in_place(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Scaled where it is."""
        return ((self.out, self.x),)


@dataclass(frozen=True, slots=True, eq=False)
class GatherRow(Row):
    """out = the lines of x whose tokens want logits."""

    op = "gather"
    x: Buffer
    out: Buffer
