"""The intermediate form: what an architecture's words leave behind.

A graph is a list of frozen nodes in the order in which they were recorded, which is an order in
which they can be computed. Every node gives `width` float values for each token of the flat batch;
only `Head` works on the tokens that want logits. Nodes are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gguf_runtime.cache.pages import CacheLayer
from gguf_runtime.graph.rope import Rope
from gguf_runtime.graph.weights import Weight

Act = Literal["silu", "gelu"]  # gelu: the tanh form


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`width` float values per token."""

    width: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads, in the order of its fields."""
        values = (getattr(self, name) for name in self.__match_args__)
        return tuple(v for v in values if isinstance(v, Node))

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights that this one reads, in the order of its fields."""
        values = (getattr(self, name) for name in self.__match_args__)
        return tuple(v for v in values if isinstance(v, Weight))


@dataclass(frozen=True, slots=True, eq=False)
class Embed(Node):
    """The rows of a matrix that the token ids name."""

    weight: Weight


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm(Node):
    """x / sqrt(mean(x * x) + eps) * w over groups of `weight.k` values (a head, or all of x)."""

    x: Node
    weight: Weight
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class Linear(Node):
    """x times the transposed matrix, plus the bias if there is one."""

    x: Node
    weight: Weight
    bias: Weight | None


@dataclass(frozen=True, slots=True, eq=False)
class Rotate(Node):
    """The rotary embedding of every head of x at the token's position."""

    x: Node
    rope: Rope


@dataclass(frozen=True, slots=True, eq=False)
class Attention(Node):
    """softmax(scale * q k) v over the sequence's positions; stores k and v into the layer's cache.

    window  a query at p sees p - window + 1 … p; 0 is no window
    """

    q: Node
    k: Node
    v: Node
    layer: int
    scale: float
    window: int
    n_head: int
    n_head_kv: int
    head_dim: int


@dataclass(frozen=True, slots=True, eq=False)
class Add(Node):
    """a + b."""

    a: Node
    b: Node


@dataclass(frozen=True, slots=True, eq=False)
class Scale(Node):
    """x times a constant."""

    x: Node
    factor: float


@dataclass(frozen=True, slots=True, eq=False)
class Gate(Node):
    """act(gate) * up."""

    gate: Node
    up: Node
    act: Act


@dataclass(frozen=True, slots=True, eq=False)
class Head(Node):
    """Logits of the tokens that want them."""

    x: Node
    weight: Weight
    bias: Weight | None


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A whole model: T ids -> logits of the tokens that want them."""

    nodes: tuple[Node, ...]
    head: Head
    layers: tuple[CacheLayer, ...]

    @property
    def n_vocab(self) -> int:
        """Logits per token."""
        return self.head.width

    @property
    def n_embd(self) -> int:
        """Values per token after the final norm."""
        return self.head.x.width

    def weights(self) -> tuple[Weight, ...]:
        """Every weight once, in the order of first use."""
        return tuple(dict.fromkeys(w for node in self.nodes for w in node.weights))
