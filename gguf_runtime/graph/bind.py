"""Rows of a plan -> kernel calls with addresses: the last step before a tape.

One method per kind of row. Where a row has no kernel of its own form, two or three calls stand for
it; plans with all fusions need none of those.
"""

from __future__ import annotations

from collections.abc import Mapping

from gguf_runtime.cache.pool import CachePlan
from gguf_runtime.graph.bind_attention import AttentionBinder, Tables
from gguf_runtime.graph.bind_matmul import MatmulBinder, Scratch
from gguf_runtime.graph.calls import Call, Times, Together, Value, same, slots
from gguf_runtime.graph.memory import U8, Buffers, Header, stride_of
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
from gguf_runtime.kernels import act, gate, norm, plain
from quant import decoding_kernels
from quant.calls import address
from quant.jit import Spec
from quant.linear import strips_per_task
from quant.simd.layout import ACTS

__all__ = ["Binder", "Calls", "Tables"]

Calls = list[Call | Together]


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
        embedding: U8,
    ) -> None:
        self._embedding = embedding
        self._matmul, self._vectors, self._buffers = matmul, vectors, buffers
        self._header, self._scratch, self._threads = header, scratch, threads
        self._attention = AttentionBinder(
            plan, cache, cache_type, vectors, buffers, header, ropes, scratch
        )

    @property
    def heads(self) -> list[Heads]:
        """Kinds of attention in the calls made so far, as `Work.kind` counts them."""
        return self._attention.heads

    def calls(self, row: Row) -> Calls:
        """The calls of one row."""
        match row:
            case EmbedRow():
                return [self._embed(row)]
            case NormRow():
                return self._norm(row)
            case QuantizeRow(x=x, act=to):
                return [self._spread(row, x, None, to)]
            case MatmulRow():
                return [self._matmul.row(row)]
            case GateRow():
                return [self._gate(row)]
            case ActRow():
                return [self._act(row)]
            case RotateRow(x=x, out=out, rope=turn):
                return [*self._moved(row, x, out), self._attention.turn(row, out, turn)]
            case StoreRow(q=q, layer=layer):
                moved = self._moved(row, q, self._attention.queries(layer)) if q else []
                return [*moved, self._attention.store(row)]
            case AttentionRow():
                return [*self._attention.attention(row)]
            case MergeRow(spans=spans, out=out, act=to, gather=gather):
                return [self._spread(row, spans, out, to, gather)]
            case AddRow(a=a, b=b, out=out):
                return [self._plain(row, "add", a, out, b=b)]
            case ScaleRow(x=x, out=out, factor=factor):
                return [self._plain(row, "scale", x, out, factor=factor)]
            case GatherRow(x=x, out=out):
                return [self._plain(row, "copy", x, out, gather=True)]
        raise AssertionError(row)

    # ---- small helpers -------------------------------------------------------------------------

    def _vector(self, weight: Weight | None) -> int:
        return 0 if weight is None else self._vectors[weight]

    def _acts(self, to: Buffer | None) -> dict[str, Value]:
        """Where a quantized result goes."""
        if to is None:
            return {}
        size = ACTS[to.format].size
        at = self._buffers.address(to)
        return {"act": at, "act_block": Times(to.counts, size), "act_column": size}

    def _rows(self, gather: bool) -> int:
        """The lines that outputs take from the tokens'; 0: line by line."""
        return address(self._header.outputs) if gather else 0

    def _embed(self, row: EmbedRow) -> Call:
        """Lines straight from the file's matrix."""
        args = slots(
            decoding_kernels.SLOTS,
            rows=address(self._header.ids),
            source=address(self._embedding) + row.weight.first_row * self._embedding.strides[0],
            row_bytes=self._embedding.strides[0],
            out=self._buffers.address(row.out),
            out_stride=stride_of(row.out.width),
            n_blocks=row.weight.k // row.weight.qtype.values,
            factor=float(row.factor),
        )
        return _by_line(row, decoding_kernels.decode_row.spec(row.weight.qtype.name), args)

    # ---- elementwise: a task is a line ---------------------------------------------------------

    def _norm(self, row: NormRow) -> Calls:
        """One call; for norms of heads one per head, since lines may be padded between tokens."""
        n = row.weight.k
        assert row.y is None or (row.x.width == n and row.post_eps == row.eps), row.name
        spec = norm.rms_norm.spec("post" if row.y else "plain", _format(row.act))
        calls: Calls = []
        for first in range(0, row.x.width, n):
            args = slots(
                norm.ARGS,
                **self._buffers.lines("x", row.x, first),
                **self._buffers.lines("y", row.y),
                **self._buffers.lines("out", row.out, first),
                y_w=self._vector(row.post),
                x_out=self._buffers.address(row.x_out) if row.x_out else 0,
                w=self._vector(row.weight),
                n=n,
                eps=float(row.eps),
                **self._acts(row.act),
            )
            calls.append(_by_line(row, spec, args))
        return calls

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
            **self._buffers.lines("a", a),
            **self._buffers.lines("b", b),
            **self._buffers.lines("out", out),
            rows=self._rows(gather),
            n=a.width,
            factor=float(factor),
        )
        return _by_line(row, plain.rowwise.spec(op), args)

    def _moved(self, row: Row, x: Buffer, out: Buffer) -> Calls:
        """A copy, where a row that works in place has been given two places."""
        same_place = self._buffers.address(x) == self._buffers.address(out)
        return [] if same_place else [self._plain(row, "copy", x, out)]

    def _spread(
        self, row: Row, x: Buffer, out: Buffer | None, to: Buffer | None, gather: bool = False
    ) -> Call:
        """x (of outputs alone with `gather`) as floats, quantized, or both."""
        args = slots(
            act.ARGS,
            **self._buffers.lines("gate", x),
            **self._buffers.lines("out", out),
            rows=self._rows(gather),
            n=x.width,
            **self._acts(to),
        )
        return _by_line(row, act.gate_act.spec("none", _format(to)), args)

    def _act(self, row: ActRow) -> Call:
        args = slots(
            act.ARGS,
            **self._buffers.lines("gate", row.gate),
            **self._buffers.lines("up", row.up),
            **self._buffers.lines("out", row.out),
            n=row.gate.width,
            **self._acts(row.act),
        )
        return _by_line(row, act.gate_act.spec(row.function, _format(row.act)), args)

    # ---- gate and up ---------------------------------------------------------------------------

    def _gate(self, row: GateRow) -> Call:
        """The two matmuls are calls inside the call; the tape fills in where they are."""
        tile = strips_per_task(-(-row.gate.rows // 16), self._threads)
        inner = []
        for weight, bias in ((row.gate, row.gate_bias), (row.up, row.up_bias)):
            args = self._matmul.matrix(weight, bias, row.x, row.counts, tile)
            inner.append(self._matmul.call(row.name, weight, row.x, args, row.counts, tile))
        outer = slots(
            gate.ARGS,
            **self._buffers.lines("out", row.out),
            tile=16 * tile,
            n_rows=row.gate.rows,
            n_columns=Times(row.counts),
            scratch=self._scratch.address + self._scratch.gate,
            scratch_step=self._scratch.step,
            **self._acts(row.act),
        )
        return Call(
            row.name,
            row.op,
            same(gate.gated_matmul.spec(row.function, _format(row.act))),
            outer,
            inner[0].tasks,
            row.counts,
            costs=tuple(cost for c in inner for cost in c.costs),
            inner=tuple(inner),
        )


def _format(to: Buffer | None) -> str:
    return "f32" if to is None else to.format


def _by_line(row: Row, spec: Spec, args: tuple[Value, ...]) -> Call:
    """A kernel with one task for each token or output of the row."""
    return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)
