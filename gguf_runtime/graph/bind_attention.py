"""Rows around the cache -> kernel calls: heads turned, keys and values stored, attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gguf_runtime.cache.pages import POSITIONS
from gguf_runtime.cache.pool import CachePlan, LayerPlace
from gguf_runtime.graph.bind_matmul import Scratch
from gguf_runtime.graph.calls import Call, Cost, Times, Value, Work, same, slots
from gguf_runtime.graph.memory import Buffers, Header
from gguf_runtime.graph.plan import Plan
from gguf_runtime.graph.rope import Rope
from gguf_runtime.graph.rows import AttentionRow, Buffer, Row, StoreRow
from gguf_runtime.graph.schedule import Heads
from gguf_runtime.graph.weights import Weight
from gguf_runtime.kernels import attention, rope
from quant.calls import address


@dataclass(frozen=True, slots=True)
class Tables:
    """Cosines and sines of a rope, f32 [n_ctx][n_rot / 2] each."""

    cos: int
    sin: int


class AttentionBinder:
    """Binds rows to the pages of the cache, and collects the kinds of attention."""

    def __init__(
        self,
        plan: Plan,
        cache: CachePlan,
        cache_type: str,
        vectors: Mapping[Weight, int],
        buffers: Buffers,
        header: Header,
        ropes: Mapping[Rope, Tables],
        scratch: Scratch,
    ) -> None:
        self._cache, self._cache_type = cache, cache_type
        self._vectors, self._buffers, self._header = vectors, buffers, header
        self._ropes, self._scratch = ropes, scratch
        self._layers = {r.layer: r for r in plan.rows if isinstance(r, AttentionRow)}
        self.heads: list[Heads] = []  # kinds of attention, in the order that `Work.kind` counts

    def queries(self, layer: int) -> Buffer:
        """Where the attention of a layer reads its queries."""
        return self._layers[layer].q

    def turn(self, row: Row, x: Buffer, by: Rope) -> Call:
        """Every head of x turned in place."""
        args = slots(
            rope.ARGS,
            **self._buffers.lines("q", x),
            n_head=x.width // by.head_dim,
            key_dim=by.head_dim,
            value_dim=by.head_dim,
            scale=1.0,
            flag=address(self._header.flag),
            **self._tokens(0),
            **self._rope(by),
        )
        spec = rope.rope_store.spec(by.kind, self._cache_type)
        return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)

    def store(self, row: StoreRow) -> Call:
        """Keys and values into pages; queries, where the row has some, turned in place."""
        if row.q is not None and (row.q_rope is None) != (row.k_rope is None):
            raise AssertionError(f"{row.name}: queries and keys are turned together or not at all")
        reader = self._layers[row.layer]
        by = row.q_rope or row.k_rope
        place = self._cache.places[row.layer]
        args = slots(
            rope.ARGS,
            **self._buffers.lines("q", reader.q),
            **self._buffers.lines("k", row.k),
            **self._buffers.lines("v", row.v),
            n_head=reader.n_head,
            n_head_kv=row.n_head_kv,
            key_dim=row.head_dim,
            value_dim=row.head_dim,
            q_norm=self._vectors[row.q_norm] if row.q_norm else 0,
            k_norm=self._vectors[row.k_norm] if row.k_norm else 0,
            eps=float(row.eps),
            scale=float(reader.scale),
            flag=address(self._header.flag) + 8 * row.layer,
            **self._tokens(place.group),
            **_pages(place),
            **self._rope(by),
        )
        spec = rope.rope_store.spec(by.kind if by else "norm", self._cache_type)
        return Call(row.name, row.op, same(spec), args, Times(row.counts), row.counts)

    def attention(self, row: AttentionRow) -> list[Call]:
        """The walk over the pages, and the merge of spans that stood apart."""
        heads = Heads(row.n_head, row.n_head_kv, row.head_dim, row.window)
        if heads not in self.heads:
            self.heads.append(heads)
        kind = self.heads.index(heads)
        place = self._cache.places[row.layer]
        both: dict[str, Value] = {
            **self._buffers.lines("out", row.out),
            "value_dim": row.head_dim,
            "n_head": row.n_head,
            "scratch": self._scratch.address,
            "scratch_step": self._scratch.step,
        }
        walk = slots(
            attention.ARGS,
            **self._buffers.lines("q", row.q),
            key_dim=row.head_dim,
            window=row.window,
            **self._tokens(place.group),
            **_pages(place),
            **both,
        )
        items, merges = Work("items", kind), Work("merges", kind, row.n_head)
        spec = same(attention.attention.spec(self._cache_type))
        join = same(attention.merge.spec())
        name, counts = f"{row.name} spans", row.counts
        cost = Cost(
            "fma",
            key_bytes=row.n_head_kv * place.layout.head_bytes // POSITIONS,
            key_macs=2 * row.n_head * row.head_dim,
            window=row.window,
        )
        return [
            Call(row.name, row.op, spec, walk, items, counts, (cost,), kind=kind),
            Call(
                name, "merge", join, slots(attention.MERGE_ARGS, **both), merges, counts, kind=kind
            ),
        ]

    def _tokens(self, group: int) -> dict[str, Value]:
        """Where the kernels find positions, sequences, and page tables of a group of layers."""
        return {
            "pos": address(self._header.pos),
            "seq": address(self._header.seq),
            "tables": address(self._header.tables[group]),
        }

    def _rope(self, by: Rope | None) -> dict[str, Value]:
        if by is None:
            return {}
        t = self._ropes[by]
        return {"n_rot": by.n_rot, "cos": t.cos, "sin": t.sin}


def _pages(place: LayerPlace) -> dict[str, Value]:
    """Where a layer's keys and values stand in a page."""
    return {
        "layer_offset": place.offset,
        "head_bytes": place.layout.head_bytes,
        "key_bytes": place.layout.key_bytes,
    }
