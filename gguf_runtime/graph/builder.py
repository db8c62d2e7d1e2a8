"""The words that an architecture is written in; each records a node and checks its widths.

    x = g.embed(w.token_embd)
    n = g.rms_norm(x, l.attn_norm, h.norm_eps)
    q = g.rope(g.linear(n, l.attn_q), rope)
    a = g.attention(q, k, v, layer=i, head_dim=h.head_dim, scale=h.scale)
    x = g.add(x, g.linear(a, l.attn_output))
    g.head(g.rms_norm(x, w.output_norm, h.norm_eps), w.output)

Widths that do not fit are mistakes of the architecture's file, not of the user's: assertions.
"""

from __future__ import annotations

from typing import TypeVar

from gguf_runtime.cache.pages import CacheLayer
from gguf_runtime.graph.nodes import (
    Act,
    Add,
    Attention,
    Embed,
    Gate,
    Graph,
    Head,
    Linear,
    Node,
    RmsNorm,
    Rotate,
    Scale,
)
from gguf_runtime.graph.rope import Rope
from gguf_runtime.graph.weights import Param

N = TypeVar("N", bound=Node)


class Builder:
    """Records nodes; `graph()` hands them over."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._layers: list[CacheLayer] = []

    def embed(self, table: Param) -> Node:
        """The ids' rows of the embedding matrix."""
        return self._record(Embed(table.weight.k, table.weight))

    def rms_norm(self, x: Node, norm: Param, eps: float) -> Node:
        """RMS norm over all of x, or over every head where the weight has a head's length."""
        assert x.width % norm.weight.k == 0, (x.width, norm)
        return self._record(RmsNorm(x.width, x, norm.weight, eps))

    def linear(self, x: Node, matrix: Param) -> Node:
        """x times the transposed matrix, plus its bias if the file has one."""
        assert x.width == matrix.weight.k, (x.width, matrix)
        return self._record(Linear(matrix.weight.rows, x, matrix.weight, matrix.bias))

    def rope(self, x: Node, rope: Rope) -> Node:
        """Every head of x turned by its token's position."""
        assert x.width % rope.head_dim == 0, (x.width, rope)
        return self._record(Rotate(x.width, x, rope))

    def attention(
        self, q: Node, k: Node, v: Node, *, layer: int, head_dim: int, scale: float, window: int = 0
    ) -> Node:
        """Causal attention over the sequence so far; query heads share key heads in equal groups."""
        n_head, n_head_kv = q.width // head_dim, k.width // head_dim
        assert q.width == n_head * head_dim, (q.width, head_dim)
        assert k.width == v.width == n_head_kv * head_dim, (k.width, v.width, head_dim)
        assert n_head % n_head_kv == 0, (n_head, n_head_kv)
        assert layer == len(self._layers), "layers come in order, each with one attention"
        self._layers.append(CacheLayer(layer, n_head_kv, head_dim, window))
        return self._record(
            Attention(q.width, q, k, v, layer, scale, window, n_head, n_head_kv, head_dim)
        )

    def add(self, a: Node, b: Node) -> Node:
        """a + b."""
        assert a.width == b.width, (a.width, b.width)
        return self._record(Add(a.width, a, b))

    def scale(self, x: Node, factor: float) -> Node:
        """x times a constant."""
        return self._record(Scale(x.width, x, factor))

    def gated(self, x: Node, gate: Param, up: Param, down: Param, *, act: Act) -> Node:
        """down(act(gate(x)) * up(x))."""
        g, u = self.linear(x, gate), self.linear(x, up)
        assert g.width == u.width, (g.width, u.width)
        return self.linear(self._record(Gate(g.width, g, u, act)), down)

    def head(self, x: Node, matrix: Param) -> Head:
        """Logits of the tokens that want them; the last word."""
        assert x.width == matrix.weight.k, (x.width, matrix)
        return self._record(Head(matrix.weight.rows, x, matrix.weight, matrix.bias))

    def graph(self) -> Graph:
        """Everything recorded so far, which ends with the head."""
        head = self._nodes[-1]
        assert isinstance(head, Head), "the head is the last word"
        return Graph(tuple(self._nodes), head, tuple(self._layers))

    def _record(self, node: N) -> N:
        self._nodes.append(node)
        return node
