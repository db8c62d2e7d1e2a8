"""Nodes -> rows. Walks the graph once; a node that a row covers in passing is marked done."""

from __future__ import annotations

from gguf_runtime.graph.nodes import (
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
from gguf_runtime.graph.rows import (
    ActRow,
    AddRow,
    AttentionRow,
    Buffer,
    Counts,
    EmbedRow,
    Format,
    GateRow,
    MatmulRow,
    MergeRow,
    NormRow,
    Part,
    RotateRow,
    Row,
    ScaleRow,
    StoreRow,
)
from gguf_runtime.graph.values import Values
from gguf_runtime.graph.weights import Weight


class Lowering(Values):
    """One graph on its way to rows; `logits` and `hidden` are set by `run`."""

    logits: Buffer
    hidden: Buffer

    def __init__(self, graph: Graph, quantized: Format, fuse: frozenset[str]) -> None:
        super().__init__(graph, quantized, fuse)
        self.done: set[Node] = set()

    def run(self) -> tuple[tuple[Row, ...], tuple[Buffer, ...]]:
        """All rows and all buffers."""
        for node in self.graph.nodes:
            if node not in self.done:
                self.done.add(node)
                self._lower(node)
        return tuple(self.rows), tuple(self.buffers)

    def _lower(self, node: Node) -> None:
        match node:
            case Embed():
                self._embed(node)
            case RmsNorm():
                self._norm(node)
            case Linear():
                self._linear(node)
            case Rotate(x=x, rope=rope):
                if not self.find.is_stored(node):
                    source = self.read(x, "f32", node)
                    self.row(
                        RotateRow("rope", self.find.counts(node), source, self.out(node), rope)
                    )
            case Attention():
                self._attention(node)
            case Add(a=a, b=b):
                self._add(node, a, b)
            case Scale(x=x, factor=factor):
                source = self.read(x, "f32", node)
                self.row(ScaleRow("scale", self.find.counts(node), source, self.out(node), factor))
            case Gate(gate=gate, up=up, act=act):
                g, u = (self.read(x, "f32", node) for x in (gate, up))
                out, quantized = self.outs(node)
                name, counts = _name("act", *_matrices(gate, up)), self.find.counts(node)
                self.row(ActRow(name, counts, g, u, act, out, quantized))
            case Head():
                self._head(node)

    # ---- words ---------------------------------------------------------------------------------

    def _embed(self, node: Embed) -> None:
        factor, target = 1.0, self.find.only_user(node)
        if isinstance(target, Scale):
            factor = target.factor
            self.done.add(target)
        out = self.out(target if isinstance(target, Scale) else node)
        self.row(EmbedRow("token_embd", "tokens", out, node.weight, factor))

    def _norm(self, node: RmsNorm) -> None:
        if self.find.is_stored(node) or self.find.is_post(node):
            return
        name, counts = _name("norm", node.weight), self.find.counts(node)
        x = node.x
        if (
            isinstance(x, Add)
            and self.find.post_of(x) is not None
            and (x, "f32", counts) not in self.values
        ):
            post = self.find.post_of(x)
            assert post is not None
            stream = self.read(x.a, "f32", node)
            y, x_out = self.read(post.x, "f32", node), self.out(x)
            out, act = self.outs(node)
            name = _name("norm", post.weight, node.weight)
            self.row(
                NormRow(
                    name,
                    counts,
                    stream,
                    node.weight,
                    node.eps,
                    out,
                    act,
                    y,
                    post.weight,
                    post.eps,
                    x_out,
                )
            )
            return
        source = self.read(x, "f32", node)
        out, act = self.outs(node)
        self.row(NormRow(name, counts, source, node.weight, node.eps, out, act))

    def _linear(self, node: Linear) -> None:
        gate = self.find.gate_of(node)
        if gate is not None:
            self._gate(gate)
            return
        group = [node]
        if "share" in self.fuse:
            counts = self.find.counts(node)
            group = [
                u
                for u in self.find.users[node.x]
                if isinstance(u, Linear)
                and self.find.counts(u) == counts
                and self.find.gate_of(u) is None
                and (u is node or u not in self.done)
            ]
        self.done.update(group)
        parts = tuple(self._part(l) for l in group)
        self.row(MatmulRow(_name("", *(l.weight for l in group)), self.find.counts(node), parts))

    def _part(self, node: Linear) -> Part:
        x = self.read(node.x, self.format(node.weight), node)
        total = self.find.only_user(node)
        if "residual" in self.fuse and isinstance(total, Add):
            other = total.b if total.a is node else total.a
            if other in self.done and other is not node and total not in self.done:
                self.done.add(total)
                resid = self.read(other, "f32", node)
                return Part(x, node.weight, node.bias, resid, self.out(total))
        return Part(x, node.weight, node.bias, None, self.out(node))

    def _gate(self, node: Gate) -> None:
        g, u = node.gate, node.up
        assert isinstance(g, Linear)
        assert isinstance(u, Linear)
        self.done.update((g, u, node))
        x = self.read(g.x, self.format(g.weight), g)
        out, act = self.outs(node)
        name, counts = _name("", g.weight, u.weight), self.find.counts(node)
        self.row(GateRow(name, counts, x, g.weight, g.bias, u.weight, u.bias, node.act, out, act))

    def _attention(self, node: Attention) -> None:
        at = f"blk.{node.layer}"
        q, k = node.q, node.k
        q_rope = k_rope = q_norm = k_norm = None
        eps = 0.0
        if "store" in self.fuse:
            if isinstance(q, Rotate) and self.find.is_stored(q):
                q_rope, q = q.rope, q.x
            if isinstance(k, Rotate) and self.find.is_stored(k):
                k_rope, k = k.rope, k.x
            if isinstance(q, RmsNorm) and isinstance(k, RmsNorm) and self.find.is_stored(q):
                q_norm, k_norm, eps, q, k = q.weight, k.weight, q.eps, q.x, k.x
        kept, keys = self.read(q, "f32", node), self.read(k, "f32", node)
        turned = self.out(node.q) if q is not node.q else None
        values = self.read(node.v, "f32", node)
        self.row(
            StoreRow(
                f"{at} rope and store" if "store" in self.fuse else f"{at} store",
                "tokens",
                keys,
                values,
                node.layer,
                node.head_dim,
                node.n_head_kv,
                kept if turned else None,
                turned,
                q_norm,
                k_norm,
                eps,
                q_rope,
                k_rope,
            )
        )
        spans = self.buffer("spans", node.width, "tokens")
        self.row(
            AttentionRow(
                f"{at} attention",
                "tokens",
                turned or kept,
                spans,
                node.layer,
                node.scale,
                node.window,
                node.n_head,
                node.n_head_kv,
                node.head_dim,
            )
        )
        gather = all(u in self.find.late for u in self.find.users[node])
        counts: Counts = "outputs" if gather else "tokens"
        out, act = self.outs(node, counts)
        self.row(
            MergeRow(f"{at} merge", counts, spans, node.n_head, node.head_dim, gather, out, act)
        )

    def _add(self, node: Add, a: Node, b: Node) -> None:
        post = self.find.post_of(node)
        if post is not None:  # the next norm does it
            return
        left, right = self.read(a, "f32", node), self.read(b, "f32", node)
        self.row(AddRow("add", self.find.counts(node), left, right, self.out(node)))

    def _head(self, node: Head) -> None:
        self.hidden = self.read(node.x, "f32", node)
        x = self.read(node.x, self.format(node.weight, "a16"), node)
        self.logits = self.out(node)
        part = Part(x, node.weight, node.bias, None, self.logits)
        self.row(MatmulRow(_name("", node.weight), "outputs", (part,)))


def _matrices(*nodes: Node) -> list[Weight]:
    return [n.weight for n in nodes if isinstance(n, Linear)]


def _name(word: str, *weights: Weight) -> str:
    """For example "blk.3 attn_q attn_k attn_v"; the layer once."""
    words: list[str] = [word] if word else []
    for weight in weights:
        stem = weight.tensor.removesuffix(".weight")
        layer, _, tensor = stem.rpartition(".")
        words += [w for w in (layer, tensor) if w and w not in words]
    return " ".join(words)
