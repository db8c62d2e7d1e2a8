"""A plan computes what its graph says, whatever is fused, in memory that is shared by lifetime.

Rows are run in float64 here, and a slot forgets what it held when another buffer is written to it,
so a row that reads a buffer too late is found.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguf_runtime.arch import load
from gguf_runtime.gguf import open_file
from gguf_runtime.graph import exact as reference
from gguf_runtime.graph.exact import Exact
from gguf_runtime.graph.plan import FUSIONS, Plan, make_plan
from gguf_runtime.graph.rows import (
    ActRow,
    AddRow,
    AttentionRow,
    Buffer,
    EmbedRow,
    GateRow,
    GatherRow,
    MatmulRow,
    MergeRow,
    NormRow,
    QuantizeRow,
    RotateRow,
    ScaleRow,
    StoreRow,
)
from gguf_runtime.graph.weights import Weight, decode

ARCHS = Path(__file__).parents[2] / "data" / "archs"
NAMES = ["llama-bias-tied", "llama-fused-qkv", "qwen2", "qwen3", "gemma3", "quant-qwen3-q4_0"]
REORDERED = 1e-10  # float64 sums in another order
OUTPUTS = [0, 7, 11]


class Runner:
    """Runs rows in float64; `memory` holds one buffer per slot."""

    def __init__(self, plan: Plan, file: Any, ids: np.ndarray) -> None:
        self.plan, self.file, self.ids = plan, file, ids
        self.pos = np.arange(len(ids))
        self.memory: dict[int, tuple[Buffer, np.ndarray]] = {}
        self.pages: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def read(self, buffer: Buffer) -> np.ndarray:
        held, value = self.memory[self.plan.slots[buffer.id]]
        assert held is buffer, "a buffer was overwritten before its last reader"
        lines = len(self.ids) if buffer.counts == "tokens" else len(OUTPUTS)
        assert value.shape == (lines, buffer.width)
        return value

    def write(self, buffer: Buffer | None, value: np.ndarray) -> None:
        if buffer is not None:
            self.memory[self.plan.slots[buffer.id]] = (buffer, value)

    def values(self, weight: Weight) -> np.ndarray:
        return decode(self.file, weight).astype(np.float64)

    def vector(self, weight: Weight) -> np.ndarray:
        return self.values(weight).reshape(-1)

    def linear(self, x: Buffer, weight: Weight, bias: Weight | None) -> np.ndarray:
        assert (x.format == "f32") == (weight.qtype.kind == "float")
        y = self.read(x) @ self.values(weight).T
        return y if bias is None else y + self.vector(bias)

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        for row in self.plan.rows:
            self.step(row)
        return self.read(self.plan.logits), self.read(self.plan.hidden)

    def step(self, row: Any) -> None:
        match row:
            case EmbedRow():
                self.write(row.out, row.factor * self.values(row.weight)[self.ids])
            case NormRow():
                x = self.read(row.x)
                if row.y is not None:
                    y = reference.rms_norm(self.read(row.y), self.vector(row.post), row.post_eps)
                    x = x + y
                    self.write(row.x_out, x)
                n = reference.rms_norm(x, self.vector(row.weight), row.eps)
                self.write(row.out, n)
                self.write(row.act, n)
            case QuantizeRow():
                self.write(row.act, self.read(row.x))
            case MatmulRow():
                results = []
                for part in row.parts:
                    y = self.linear(part.x, part.weight, part.bias)
                    results.append(y if part.resid is None else y + self.read(part.resid))
                for part, y in zip(row.parts, results, strict=True):
                    self.write(part.out, y)
            case GateRow():
                g = self.linear(row.x, row.gate, row.gate_bias)
                y = reference.activate(g, row.function)
                y = y * self.linear(row.x, row.up, row.up_bias)
                self.write(row.out, y)
                self.write(row.act, y)
            case ActRow():
                y = reference.activate(self.read(row.gate), row.function) * self.read(row.up)
                self.write(row.out, y)
                self.write(row.act, y)
            case RotateRow():
                self.write(row.out, reference.rotate(self.read(row.x), row.rope, self.pos))
            case StoreRow():
                k, v = self.read(row.k), self.read(row.v)
                q = None if row.q is None else self.read(row.q)
                if row.k_norm is not None:
                    k = reference.rms_norm(k, self.vector(row.k_norm), row.eps)
                    q = reference.rms_norm(q, self.vector(row.q_norm), row.eps)
                if row.k_rope is not None:
                    k = reference.rotate(k, row.k_rope, self.pos)
                if row.q_rope is not None:
                    q = reference.rotate(q, row.q_rope, self.pos)
                heads = (len(k), row.n_head_kv, row.head_dim)
                self.pages[row.layer] = tuple(x.reshape(heads).swapaxes(0, 1) for x in (k, v))
                if row.out is not None:
                    self.write(row.out, q)
            case AttentionRow():
                q = self.read(row.q).reshape(-1, row.n_head, row.head_dim)
                keys, values = self.pages[row.layer]
                a = reference.attention(q, keys, values, self.pos, row.scale, row.window)
                self.write(row.out, a.reshape(len(q), -1))
            case MergeRow():
                a = self.read(row.spans)
                self.write(row.out, a[OUTPUTS] if row.gather else a)
                self.write(row.act, a[OUTPUTS] if row.gather else a)
            case AddRow():
                self.write(row.out, self.read(row.a) + self.read(row.b))
            case ScaleRow():
                self.write(row.out, self.read(row.x) * row.factor)
            case GatherRow():
                self.write(row.out, self.read(row.x)[OUTPUTS])
            case _:
                raise AssertionError(row)


def model(name: str) -> tuple[Any, Any, np.ndarray]:
    file = open_file(ARCHS / f"{name}.gguf")
    with np.load(ARCHS / f"{name}.npz") as data:
        return load(file).graph, file, data["tokens"][:12]


def subsets() -> list[frozenset[str]]:
    small = [frozenset(c) for n in (0, 1) for c in combinations(sorted(FUSIONS), n)]
    return small + [FUSIONS - s for s in small]


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_gives_the_exact_logits_with_any_fusion_on_or_off(name: str):
    graph, file, ids = model(name)
    exact = Exact(graph, file)
    logits, hidden = exact.forward(exact.sequence(), ids, outputs=OUTPUTS)

    for fuse in subsets():
        got, got_hidden = Runner(make_plan(graph, fuse=fuse), file, ids).run()

        assert np.abs(got - logits).max() <= REORDERED, fuse
        assert np.abs(got_hidden - hidden).max() <= REORDERED, fuse


def test_a_layer_of_llama_is_eight_rows():
    graph, _, _ = model("quant-llama-q4_k_m")
    layers = len(graph.layers)

    ops = [row.op for row in make_plan(graph).rows]

    layer = ["norm", "matmul", "store", "attention", "merge", "matmul", "norm", "gate", "matmul"]
    assert ops[: 1 + 9 * layers] == [
        "embed",
        *layer * (layers - 1),
        *layer[:5],
        "gather",
        *layer[5:8],
    ]


def test_a_layer_of_gemma3_norms_twice_and_adds_nothing_apart():
    graph, _, _ = model("gemma3")

    ops = [row.op for row in make_plan(graph).rows]

    assert ops.count("norm") == 2 * len(graph.layers) + 1
    assert "add" not in ops
    assert "scale" not in ops


def test_what_follows_the_last_attention_counts_outputs():
    graph, _, _ = model("qwen3")

    rows = make_plan(graph).rows

    last = max(i for i, row in enumerate(rows) if row.op == "attention")
    assert {row.counts for row in rows[: last + 1]} == {"tokens"}
    assert {row.counts for row in rows[last + 1 :]} == {"outputs"}


@pytest.mark.parametrize(("precision", "format"), [("int8", "a8"), ("int16", "a16")])
def test_the_head_reads_16_bit_activations_and_the_rest_follows_the_precision(
    precision: str, format: str
):
    graph, _, _ = model("quant-qwen3-q4_0")

    *body, head = [
        part.x.format
        for row in make_plan(graph, precision).rows
        if isinstance(row, MatmulRow)
        for part in row.parts
    ]

    assert set(body) == {format}
    assert head == "a16"


def test_slots_do_not_grow_with_the_number_of_layers():
    graph, _, _ = model("gemma3")

    plan = make_plan(graph)

    assert len(plan.buffers) > 60
    assert plan.n_slots <= 16


def test_every_weight_is_packed_or_decoded():
    for name in NAMES:
        graph, _, _ = model(name)
        plan = make_plan(graph)
        embedding = {w for w in graph.weights() if w.tensor == "token_embd.weight"}

        assert {*plan.matrices(), *plan.vectors()} | embedding == set(graph.weights())
