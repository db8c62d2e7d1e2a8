"""The values of nodes while a graph is lowered: which buffers hold them, in which formats.

A value may be wanted as floats, in a matmul's format, or in both. The producer writes both where it
can ("quantize"), else a row of its own follows when the first reader comes.
"""

from __future__ import annotations

from gguf_runtime.graph.fusions import Patterns
from gguf_runtime.graph.nodes import Graph, Head, Linear, Node
from gguf_runtime.graph.rows import Buffer, Counts, Format, GatherRow, QuantizeRow, Row
from gguf_runtime.graph.weights import Weight


class Values:
    """Rows and buffers so far, and where to find every value."""

    def __init__(self, graph: Graph, quantized: Format, fuse: frozenset[str]) -> None:
        self.graph = graph
        self.quantized = quantized
        self.fuse = fuse
        self.find = Patterns(graph, fuse)
        self.rows: list[Row] = []
        self.buffers: list[Buffer] = []
        self.values: dict[tuple[Node, Format, Counts], Buffer] = {}

    def format(self, weight: Weight, quantized: Format | None = None) -> Format:
        """What a matrix of this type multiplies by."""
        return "f32" if weight.qtype.kind == "float" else quantized or self.quantized

    def wants(self, node: Node, counts: Counts) -> tuple[bool, Format | None]:
        """Whether anyone reads a node as floats, and the quantized format that is read, if any.

        Who works on fewer tokens gathers floats and quantizes them himself.
        """
        floats, quantized = False, None
        for user in self.find.users[node]:
            wanted: Format = "f32"
            if isinstance(user, Linear):
                wanted = self.format(user.weight)
            elif isinstance(user, Head):
                wanted, floats = self.format(user.weight, "a16"), True  # `hidden`
            if wanted == "f32" or self.find.counts(user) != counts:
                floats = True
            else:
                quantized = wanted
        return floats, quantized

    def outs(self, node: Node, counts: Counts | None = None) -> tuple[Buffer | None, Buffer | None]:
        """New buffers for what the consumers of a node want: floats, quantized."""
        floats, quantized = self.wants(node, counts or self.find.counts(node))
        if "quantize" not in self.fuse:
            floats, quantized = True, None
        out = self.out(node, "f32", counts) if floats else None
        return out, self.out(node, quantized, counts) if quantized else None

    def out(self, node: Node, format: Format = "f32", counts: Counts | None = None) -> Buffer:
        """A new buffer for a node's value."""
        counts = counts or self.find.counts(node)
        buffer = self.buffer(format, node.width, counts)
        self.values[node, format, counts] = buffer
        return buffer

    def read(self, node: Node, format: Format, reader: Node) -> Buffer:
        """A node's value for a reader: quantized or gathered first where it is not there yet."""
        counts = self.find.counts(reader)
        found = self.values.get((node, format, counts))
        if found is not None:
            return found
        if format != "f32":
            source = self.read(node, "f32", reader)
            buffer = self.out(node, format, counts)
            self.row(QuantizeRow("quantize", counts, source, buffer))
            return buffer
        source = self.values[node, "f32", "tokens"]
        buffer = self.out(node, "f32", counts)
        self.row(GatherRow("outputs", counts, source, buffer))
        return buffer

    def buffer(self, format: Format, width: int, counts: Counts) -> Buffer:
        """A new buffer."""
        self.buffers.append(Buffer(len(self.buffers), format, width, counts))
        return self.buffers[-1]

    def row(self, row: Row) -> None:
        """The next row."""
        self.rows.append(row)
