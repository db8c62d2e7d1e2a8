"""From a graph to rows: what runs together, in which order, and where results live.

Fusions, each of which can be switched off (the results do not change by a bit):
    share      matrices that read the same values are one row
    residual   a matrix adds into the residual stream when it stores
    quantize   norm, gate and merge write the next matrix's format themselves
    gate       gate, up and the activation function are one row
    store      head norms, rope and the store into the cache are one row
    post       a norm of a branch's result, the residual and the next norm are one row
    outputs    what follows the last attention is computed for tokens that want logits only
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gguf_runtime.cache.pages import CacheLayer
from gguf_runtime.graph.fusions import FUSIONS
from gguf_runtime.graph.lower import Lowering
from gguf_runtime.graph.nodes import Graph
from gguf_runtime.graph.rows import Buffer, Format, GateRow, MatmulRow, NormRow, Row, StoreRow
from gguf_runtime.graph.slots import assign_slots
from gguf_runtime.graph.weights import Weight

FORMATS: dict[str, Format] = {"int8": "a8", "int16": "a16"}  # by precision; the head takes a16


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Rows in the order in which they run.

    buffers  every buffer, by id
    slots    for every buffer the piece of memory that it lives in; buffers that are never needed at
             the same time share one
    logits   f32, one line per output
    hidden   f32, one line per output: what the head reads
    """

    rows: tuple[Row, ...]
    buffers: tuple[Buffer, ...]
    slots: tuple[int, ...]
    logits: Buffer
    hidden: Buffer
    layers: tuple[CacheLayer, ...]

    @property
    def n_slots(self) -> int:
        """Pieces of memory."""
        return max(self.slots) + 1

    def matrices(self) -> tuple[Weight, ...]:
        """What must be packed: the weights that matmuls read, each once, in order of first use."""
        return tuple(dict.fromkeys(w for row in self.rows for w in _matrices(row)))

    def vectors(self) -> tuple[Weight, ...]:
        """Norms and biases, each once: what must be decoded to floats."""
        return tuple(dict.fromkeys(w for row in self.rows for w in _vectors(row)))


def make_plan(graph: Graph, precision: str = "int8", fuse: bool | Collection[str] = True) -> Plan:
    """The plan of a graph.

    Args:
        graph: from an architecture.
        precision: "int8" or "int16", the activations of quantized weights.
        fuse: True for all of `FUSIONS`, False for none, or names.
    """
    names = FUSIONS if fuse is True else frozenset() if fuse is False else frozenset(fuse)
    assert names <= FUSIONS, names - FUSIONS
    lowering = Lowering(graph, FORMATS[precision], names)
    rows, buffers = lowering.run()
    pinned = (lowering.logits, lowering.hidden)
    return Plan(rows, buffers, assign_slots(rows, buffers, pinned), *pinned, layers=graph.layers)


def _matrices(row: Row) -> tuple[Weight, ...]:
    match row:
        case MatmulRow(parts=parts):
            return tuple(p.weight for p in parts)
        case GateRow(gate=gate, up=up):
            return gate, up
    return ()


def _vectors(row: Row) -> tuple[Weight, ...]:
    found: tuple[Weight | None, ...] = ()
    match row:
        case MatmulRow(parts=parts):
            found = tuple(p.bias for p in parts)
        case GateRow(gate_bias=gate_bias, up_bias=up_bias):
            found = gate_bias, up_bias
        case NormRow(post=post, weight=weight):
            found = post, weight
        case StoreRow(q_norm=q_norm, k_norm=k_norm):
            found = q_norm, k_norm
    return tuple(w for w in found if w is not None)
