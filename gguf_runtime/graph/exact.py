"""Runs a graph in plain numpy float64: slow, simple, the truth that everything else is held to.

Weights are the values that the file's blocks stand for, kept as float32 (which is exact) and widened
slab by slab. Nothing is rounded on the way, so what differs from here is the other side's arithmetic.
`GGUF_RUNTIME_EXACT=1` makes the engine use this instead of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence as Sized
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
from gguf_runtime.graph.weights import Weight, decode

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

SLAB_VALUES = 1 << 22  # weights widened at a time: 32 MB


class ExactSequence:
    """The keys and values of one sequence: per layer (n_head_kv, positions, head_dim) float64."""

    def __init__(self, graph: Graph) -> None:
        empty = [np.zeros((l.n_head_kv, 0, l.head_dim)) for l in graph.layers]
        self.keys: list[F64] = empty
        self.values: list[F64] = list(empty)

    def __len__(self) -> int:
        n: int = self.keys[0].shape[1]
        return n

    def truncate(self, n: int) -> None:
        """Keep the first `n` positions."""
        self.keys = [k[:, :n] for k in self.keys]
        self.values = [v[:, :n] for v in self.values]

    def fork(self) -> ExactSequence:
        """A sequence that starts with the same positions; arrays are shared, never written."""
        twin = object.__new__(ExactSequence)
        twin.keys, twin.values = list(self.keys), list(self.values)
        return twin


class Exact:
    """A graph and its decoded weights."""

    def __init__(self, graph: Graph, file: GGUFFile) -> None:
        self.graph = graph
        self._file = file
        self._decoded: dict[Weight, F32] = {}

    def sequence(self) -> ExactSequence:
        """An empty sequence."""
        return ExactSequence(self.graph)

    def forward(
        self, sequence: ExactSequence, ids: Sized[int], outputs: Sized[int] | None = None
    ) -> tuple[F64, F64]:
        """Append ids to a sequence.

        Args:
            sequence: what came before; grows by `len(ids)` positions.
            ids: the next tokens.
            outputs: indices into `ids` of those that want logits; None for all.

        Returns:
            logits (outputs, n_vocab) and the hidden states that they came from (outputs, n_embd).
        """
        tokens = np.asarray(ids, np.int64)
        wanted = np.arange(len(tokens)) if outputs is None else np.asarray(outputs, np.int64)
        positions = np.arange(len(sequence), len(sequence) + len(tokens))
        last_use = {x: node for node in self.graph.nodes for x in node.inputs}
        values: dict[Node, F64] = {}
        hidden = np.zeros((0, self.graph.n_embd))
        for node in self.graph.nodes:
            match node:
                case Embed(weight=weight):
                    y = self._rows(weight, tokens)
                case RmsNorm(x=x, weight=weight, eps=eps):
                    y = rms_norm(values[x], self._vector(weight), eps)
                case Linear(x=x, weight=weight, bias=bias):
                    y = self._linear(values[x], weight, bias)
                case Rotate(x=x, rope=rope):
                    y = rotate(values[x], rope, positions)
                case Attention():
                    q, k, v = (values[x] for x in node.inputs)
                    y = self._attention(node, sequence, q, k, v, positions)
                case Add(a=a, b=b):
                    y = values[a] + values[b]
                case Scale(x=x, factor=factor):
                    y = values[x] * factor
                case Gate(gate=gate, up=up, act=act):
                    y = activate(values[gate], act) * values[up]
                case Head(x=x, weight=weight, bias=bias):
                    hidden = values[x][wanted]
                    y = self._linear(hidden, weight, bias)
                case _:
                    raise AssertionError(node)
            values[node] = y
            for x in node.inputs:
                if last_use[x] is node:
                    values.pop(x, None)
        return values[self.graph.head], hidden

    def _weight(self, weight: Weight) -> F32:
        if weight not in self._decoded:
            self._decoded[weight] = decode(self._file, weight)
        return self._decoded[weight]

    def _rows(self, weight: Weight, ids: NDArray[np.int64]) -> F64:
        return self._weight(weight)[ids].astype(np.float64)

    def _vector(self, weight: Weight) -> F64:
        return self._weight(weight).reshape(-1).astype(np.float64)

    def _linear(self, x: F64, weight: Weight, bias: Weight | None) -> F64:
        y = matmul(x, self._weight(weight))
        return y if bias is None else y + self._vector(bias)

    def _attention(
        self,
        node: Attention,
        sequence: ExactSequence,
        q: F64,
        k: F64,
        v: F64,
        pos: NDArray[np.int64],
    ) -> F64:
        heads = (len(pos), node.n_head_kv, node.head_dim)
        i = node.layer
        sequence.keys[i] = np.concatenate(
            [sequence.keys[i], k.reshape(heads).swapaxes(0, 1)], axis=1
        )
        sequence.values[i] = np.concatenate(
            [sequence.values[i], v.reshape(heads).swapaxes(0, 1)], axis=1
        )
        y = attention(
            q.reshape(len(pos), node.n_head, node.head_dim),
            sequence.keys[i],
            sequence.values[i],
            pos,
            node.scale,
            node.window,
        )
        return y.reshape(len(pos), -1)


def matmul(x: F64, w: F32) -> F64:
    """(n, k) times the transpose of (rows, k), widened in slabs -> (n, rows)."""
    y = np.empty((len(x), len(w)))
    step = max(1, SLAB_VALUES // w.shape[1])
    for r in range(0, len(w), step):
        y[:, r : r + step] = x @ w[r : r + step].astype(np.float64).T
    return y


def rms_norm(x: F64, w: F64, eps: float) -> F64:
    """Norm over groups of len(w) values of every row."""
    groups = x.reshape(len(x), -1, len(w))
    mean = np.mean(groups * groups, axis=-1, keepdims=True)
    y: F64 = groups / np.sqrt(mean + eps) * w
    return y.reshape(x.shape)


def rotate(x: F64, rope: Rope, positions: NDArray[np.int64]) -> F64:
    """Turn every head of every row by its position."""
    heads = x.reshape(len(x), -1, rope.head_dim)
    cos, sin = (t[:, None, :] for t in rope.cos_sin(positions))
    first, second = rope.pairs()
    a, b = heads[..., first], heads[..., second]
    y = heads.copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y.reshape(x.shape)


def attention(
    q: F64, keys: F64, values: F64, pos: NDArray[np.int64], scale: float, window: int
) -> F64:
    """(T, n_head, head_dim) queries over (n_head_kv, positions, head_dim) -> like q."""
    distance = pos[:, None] - np.arange(keys.shape[1])[None, :]
    hidden = distance < 0
    if window:
        hidden |= distance >= window
    group = q.shape[1] // len(keys)
    y = np.empty_like(q)
    for h in range(q.shape[1]):
        scores = (q[:, h] @ keys[h // group].T) * scale
        scores[hidden] = -np.inf
        y[:, h] = softmax(scores) @ values[h // group]
    return y


def softmax(x: F64) -> F64:
    """Over the last axis."""
    e: F64 = np.exp(x - x.max(axis=-1, keepdims=True))
    total: F64 = e.sum(axis=-1, keepdims=True)
    return e / total


def activate(x: F64, act: Act) -> F64:
    """silu, or gelu in its tanh form."""
    if act == "silu":
        with np.errstate(over="ignore"):  # exp(-x) of a large negative x: the result is -0
            down: F64 = 1.0 + np.exp(-x)
        return x / down
    inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x * x * x)
    y: F64 = 0.5 * x * (1.0 + np.tanh(inner))
    return y
