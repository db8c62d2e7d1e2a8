"""Rows of a plan -> kernel calls with addresses: the last step before a tape.

One method per kind of row. Where a row has no kernel of its own form, two or three calls stand for it; plans with all
fusions need none of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gguf_runtime.cache.pool import CachePlan
from gguf_runtime.graph.bind_matmul import MatmulBinder, Scratch, specs_of, strips_per_task
from gguf_runtime.graph.calls import Call, Times, Together, Value, Work, same, slots
from gguf_runtime.graph.memory import Buffers, Header, stride_of
from gguf_runtime.graph.plan import Plan
from gguf_runtime.graph.rope import Rope
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
    Row,
    ScaleRow,
    StoreRow,
)
from gguf_runtime.graph.schedule import Heads
from gguf_runtime.graph.weights import Weight
from gguf_runtime.kernels import act, attention, gate, norm, plain, rope
from quant.simd.layout import ACTS

Calls = list[Call | Together]


@dataclass(frozen=True, slots=True)
class Tables:
    """Cosines and sines of a rope, f32 [n_ctx][n_rot / 2] each."""

    cos: int
    sin: int


class Binder:
    """Everything with an address, by the names that rows use."""

    def __init__(
        self,
        plan: Plan,
        cache: CachePlan,
        cache_type: str,
        matmul: MatmulBinder,
        vectors: Mapping[Weight, int],
        buffers: Buffers,
        header: Header,
        ropes: Mapping[Rope, Tables],
        scratch: Scratch,
        threads: int,
    ) -> None:
        self._plan, self._cache, self._cache_type = plan, cache, cache_type
        self._matmul, self._vectors, self._buffers = matmul, vectors, buffers
        self._header, self._ropes, self._scratch, self._threads = header, ropes, scratch, threads
        self._scales = {r.layer: r.scale for r in plan.rows if isinstance(r, AttentionRow)}
        self.heads: list[Heads] = []  # kinds of attention, in the order that `Work.kind` counts

    def calls(self, row: Row) -> Calls:
        """The calls of one row; none for the embedding, whose lines come from the file."""
        match row:
            case EmbedRow():
                return []
            case NormRow():
                return [self._norm(row)]
            case QuantizeRow(x=x, act=to):
                return [self._spread(row, x, None, to)]
            case MatmulRow():
                return [self._matmul.row(row)]
            case GateRow():
                return [self._gate(row)]
            case ActRow():
                return [self._act(row)]
            case RotateRow(x=x, out=out, rope=turn):
                return [*self._moved(row, x, out), self._turn(row, out, turn)]
            case StoreRow():
                return self._store(row)
            case AttentionRow():
                return self._attention(row)
            case MergeRow(spans=spans, out=out, act=to, gather=gather):
                return [self._spread(row, spans, out, to, gather)]
            case AddRow(a=a, b=b, out=out):
                return [self._plain(row, "add", a, out, b=b)]
            case ScaleRow(x=x, out=out, factor=factor):
                return [self._plain(row, "scale", x, out, factor=factor)]
            case GatherRow(x=x, out=out):
                return [self._plain(row, "copy", x, out, gather=True)]
        raise AssertionError(row)

    # ---- small helpers -----------------------------------------------------------------------------------------------

    def _address(self, buffer: Buffer | None) -> int:
        return 0 if buffer is None else self._buffers.address(buffer)

    def _vector(self, weight: Weight | None) -> int:
        return 0 if weight is None else self._vectors[weight]

    def _acts(self, to: Buffer | None) -> dict[str, Value]:
        """Where a quantized result goes."""
        if to is None:
            return {}
        size = ACTS[to.format].size
        return {"act": self._address(to), "act_block": Times(to.counts, size), "act_column": size}

    # ---- elementwise -------------------------------------------------------------------------------------------------

    def _norm(self, row: NormRow) -> Call:
        fmt = row.act.format if row.act else "f32"
        n = row.weight.k
        heads = row.x.width // n
        assert heads == 1 or row.y is None
        if row.y is not None:
            assert row.post_eps == row.eps, row.name
        stride = stride_of(row.x.width)
        # Norms of heads stand at one distance from each other only where lines are not padded.
        assert heads == 1 or stride == 4 * row.x.width, row.name
        out_stride = stride_of(row.out.width) if row.out else 0
        args = slots(
            norm.ARGS,
            x=self._address(row.x),
            x_stride=stride if heads == 1 else 4 * n,
            y=self._address(row.y),
            y_stride=stride_of(row.y.width) if row.y else 0,
            y_w=self._vector(row.post),
            x_out=self._address(row.x_out),
            w=self._vector(row.weight),
            out=self._address(row.out),
            out_stride=out_stride if heads == 1 else 4 * n,
            n=n,
            eps=float(row.eps),
            **self._acts(row.act),
        )
        form = "plain" if row.y is None else "post"
        spec = norm.rms_norm.spec(form, fmt)
        return Call(row.name, row.op, same(spec), args, Times(row.counts, heads), row.counts)

    def _plain(
        self,
        row: Row,
        op: str,
        a: Buffer,
        out: Buffer,
        b: Buffer | None = None,
        factor: float = 1.0,
        gather: bool = False,
    ) -> Call:
        args = slots(
            plain.ARGS,
            a=self._address(a),
            a_stride=stride_of(a.width),
            b=self._address(b),
            b_stride=stride_of(b.width) if b else 0,
            out=self._address(out),
            out_stride=stride_of(out.width),
            rows=int(self._header.outputs.ctypes.data) if gather else 0,
            n=a.width,
            factor=float(factor),
        )
        return Call(row.name, row.op, same(plain.rowwise.spec(op)), args, Times(row.counts), row.counts)

    def _moved(self, row: Row, x: Buffer, out: Buffer) -> Calls:
        """A copy, where a row that works in place has been given two places."""
        return [] if self._address(x) == self._address(out) else [self._plain(row, "copy", x, out)]

    def _spread(
        self, row: Row, x: Buffer, out: Buffer | None, to: Buffer | None, gather: bool = False
    ) -> Call:
        """x (of outputs alone with `gather`) as floats, quantized, or both."""
        args = slots(
            act.ARGS,
            gate=self._address(x),
            gate_stride=stride_of(x.width),
            out=self._address(out),
            out_stride=stride_of(out.width) if out else 0,
            rows=int(self._header.outputs.ctypes.data) if gather else 0,
            n=x.width,
            **self._acts(to),
        )
        spec = act.gate_act.spec("none", to.format if to else "f32")
        return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)

    def _act(self, row: ActRow) -> Call:
        args = slots(
            act.ARGS,
            gate=self._address(row.gate),
            gate_stride=stride_of(row.gate.width),
            up=self._address(row.up),
            up_stride=stride_of(row.up.width),
            out=self._address(row.out),
            out_stride=stride_of(row.out.width) if row.out else 0,
            n=row.gate.width,
            **self._acts(row.act),
        )
        spec = act.gate_act.spec(row.function, row.act.format if row.act else "f32")
        return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)

    # ---- gate and up -------------------------------------------------------------------------------------------------

    def _gate(self, row: GateRow) -> Call:
        """The two matmuls are calls inside the call; the tape fills in where they are."""
        strips = -(-row.gate.rows // 16)
        tile = strips_per_task(strips, self._threads)
        inner = []
        for weight, bias in ((row.gate, row.gate_bias), (row.up, row.up_bias)):
            args = self._matmul.matrix(weight, bias, row.x, row.counts, tile)
            inner.append(self._matmul.call(row.name, weight, row.x, args, row.counts, tile))
        args_outer = slots(
            gate.ARGS,
            tile=16 * tile,
            n_rows=row.gate.rows,
            n_columns=Times(row.counts),
            out=self._address(row.out),
            out_stride=stride_of(row.out.width) if row.out else 0,
            scratch=self._scratch.address + self._scratch.gate,
            scratch_step=self._scratch.step,
            **self._acts(row.act),
        )
        spec = gate.gated_matmul.spec(row.function, row.act.format if row.act else "f32")
        n_bytes, n_macs = (sum(getattr(c, f) for c in inner) for f in ("n_bytes", "n_macs"))
        return Call(
            row.name,
            row.op,
            same(spec),
            args_outer,
            inner[0].tasks,
            row.counts,
            n_bytes,
            n_macs,
            inner=(inner[0], inner[1]),
        )

    # ---- attention ---------------------------------------------------------------------------------------------------

    def _rope_args(self, turn: Rope | None) -> dict[str, Value]:
        if turn is None:
            return {}
        t = self._ropes[turn]
        return {"n_rot": turn.n_rot, "cos": t.cos, "sin": t.sin}

    def _turn(self, row: Row, x: Buffer, turn: Rope) -> Call:
        """Every head of x turned in place."""
        args = slots(
            rope.ARGS,
            q=self._address(x),
            q_stride=stride_of(x.width),
            n_head=x.width // turn.head_dim,
            key_dim=turn.head_dim,
            value_dim=turn.head_dim,
            scale=1.0,
            pos=int(self._header.pos.ctypes.data),
            seq=int(self._header.seq.ctypes.data),
            tables=int(self._header.tables[0].ctypes.data),
            flag=int(self._header.flag.ctypes.data),
            **self._rope_args(turn),
        )
        spec = rope.rope_store.spec(turn.kind, self._cache_type)
        return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)

    def _store(self, row: StoreRow) -> Calls:
        place = self._cache.places[row.layer]
        scale = float(self._scales[row.layer])
        attention_row = next(
            r for r in self._plan.rows if isinstance(r, AttentionRow) and r.layer == row.layer
        )
        q = attention_row.q
        calls = self._moved(row, row.q, q) if row.q is not None else []
        turns = [t for t in (row.q_rope, row.k_rope) if t is not None]
        if row.q is not None and (row.q_rope is None) != (row.k_rope is None):
            raise AssertionError(f"{row.name}: queries and keys are turned together or not at all")
        turn = turns[0] if turns else None
        args = slots(
            rope.ARGS,
            q=self._address(q),
            q_stride=stride_of(q.width),
            k=self._address(row.k),
            k_stride=stride_of(row.k.width),
            v=self._address(row.v),
            v_stride=stride_of(row.v.width),
            n_head=attention_row.n_head,
            n_head_kv=row.n_head_kv,
            key_dim=row.head_dim,
            value_dim=row.head_dim,
            pos=int(self._header.pos.ctypes.data),
            seq=int(self._header.seq.ctypes.data),
            tables=int(self._header.tables[place.group].ctypes.data),
            layer_offset=place.offset,
            head_bytes=place.layout.head_bytes,
            key_bytes=place.layout.key_bytes,
            q_norm=self._vector(row.q_norm),
            k_norm=self._vector(row.k_norm),
            eps=float(row.eps),
            scale=scale,
            flag=int(self._header.flag.ctypes.data) + 8 * row.layer,
            **self._rope_args(turn),
        )
        spec = rope.rope_store.spec(turn.kind if turn else "norm", self._cache_type)
        return [*calls, Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)]

    def _attention(self, row: AttentionRow) -> Calls:
        heads = Heads(row.n_head, row.n_head_kv, row.head_dim, row.window)
        if heads not in self.heads:
            self.heads.append(heads)
        kind = self.heads.index(heads)
        place = self._cache.places[row.layer]
        args = slots(
            attention.ARGS,
            q=self._address(row.q),
            q_stride=stride_of(row.q.width),
            out=self._address(row.out),
            out_stride=stride_of(row.out.width),
            key_dim=row.head_dim,
            value_dim=row.head_dim,
            pos=int(self._header.pos.ctypes.data),
            seq=int(self._header.seq.ctypes.data),
            tables=int(self._header.tables[place.group].ctypes.data),
            layer_offset=place.offset,
            head_bytes=place.layout.head_bytes,
            key_bytes=place.layout.key_bytes,
            window=row.window,
            n_head=row.n_head,
            scratch=self._scratch.address,
            scratch_step=self._scratch.step,
        )
        merge = slots(
            attention.MERGE_ARGS,
            out=self._address(row.out),
            out_stride=stride_of(row.out.width),
            value_dim=row.head_dim,
            n_head=row.n_head,
            scratch=self._scratch.address,
            scratch_step=self._scratch.step,
        )
        walk = same(attention.attention.spec(self._cache_type))
        join = same(attention.merge.spec())
        return [
            Call(row.name, row.op, walk, args, Work("items", kind), row.counts, kind=kind),
            Call(f"{row.name} spans", "merge", join, merge, Work("merges", kind, row.n_head), row.counts, kind=kind),
        ]


__all__ = ["Binder", "Calls", "Tables", "specs_of"]
