"""One order for every (query, head): decode, prefill, split spans and neighbours give the same bits."""

import numpy as np
import pytest

from gguf_runtime.kernels import attention
from gguf_runtime.kernels.attention_checks import AttentionCase, whole_items
from gguf_runtime.kernels.checks import run_all, same_bits
from gguf_runtime.kernels.slots import row
from quant import cpu
from quant.simd.elementary import exp_bits

every_isa = pytest.mark.parametrize("isa", cpu.exact()[::-1])
SHAPES = [(9, 3, 64, 0), (4, 1, 32, 100), (6, 6, 32, 0), (14, 2, 64, 70)]


def one_by_one(pos, n_head, n_head_kv):
    """An item per query and head."""
    group = n_head // n_head_kv
    return np.array(
        [
            (t, 1, h, 1, 0, int(p) // attention.SPAN + 1, -1, h // group)
            for t, p in enumerate(pos)
            for h in range(n_head)
        ],
        np.int32,
    )


def by_span(pos, n_head, n_head_kv, window):
    """An item per query, kv head and span, with the rows that merge them."""
    group = n_head // n_head_kv
    items, rows, slot = [], [], 0
    for t, p in enumerate(pos):
        first = max(0, int(p) - window + 1) // attention.SPAN if window else 0
        spans = range(first, int(p) // attention.SPAN + 1)
        for h in range(n_head_kv):
            items += [(t, 1, h * group, group, s, 1, slot + s - first, h) for s in spans]
        rows.append((t, slot, len(spans), 1))
        slot += len(spans)
    return np.array(items, np.int32), np.array(rows, np.int32), slot


def run_split(kernels, spec, case, n_head_kv):
    """The case with every span an item of its own, then merged."""
    items, rows, slots = by_span(case.pos, case.n_head, n_head_kv, case.window)
    dim = case.q.shape[2]
    partial = np.full(slots * attention.partial_floats(case.n_head, dim), np.nan, np.float32)
    args, scratch = case.args(items, partial)
    run_all(kernels[spec], args, len(items))
    merge = row(
        attention.MERGE_ARGS,
        out=case.out.array,
        out_stride=4 * case.n_head * dim,
        value_dim=dim,
        partial=partial,
        n_head=case.n_head,
        rows=rows,
        scratch=scratch.array,
    )
    run_all(kernels[attention.merge.spec()], merge, len(rows) * case.n_head)
    assert case.out.intact()
    assert scratch.intact()
    return case.out.array


@every_isa
@pytest.mark.parametrize("cache", ["f16", "q8_0"])
@pytest.mark.parametrize(("n_head", "n_head_kv", "dim", "window"), SHAPES)
def test_alone_in_tiles_and_split_by_spans_are_the_same_bits(
    isa, cache, n_head, n_head_kv, dim, window, kernels
):
    pos = np.array([*range(505, 530), 1023, 1024, 1100], np.int32)
    case = AttentionCase(cache, n_head, n_head_kv, dim, pos, window)
    spec = attention.attention.spec(cache)

    tiles = case.run(kernels(isa)[spec], whole_items(pos, n_head, n_head_kv)).copy()
    alone = case.run(kernels(isa)[spec], one_by_one(pos, n_head, n_head_kv)).copy()
    split = run_split(kernels(isa), spec, case, n_head_kv)

    assert np.all(np.isfinite(tiles))
    assert same_bits(tiles, alone)
    assert same_bits(tiles, split)


@every_isa
def test_what_a_later_smaller_span_weighs_has_the_bits_of_exp(isa, kernels):
    x = np.linspace(-110, 0, 3001).astype(np.float32)
    x = np.concatenate([x, np.float32([-np.inf, -104, -103.97, -87.34, -1e-40, -0.0])])
    dim = 16
    # M, L, O of each head are 0, 1, 0 and then x, 0, 1: what comes out is e^x * 1 / 1.
    partial = np.zeros((2, len(x), 16 + dim), np.float32)
    partial[0, :, 1], partial[1, :, 0], partial[1, :, 16:] = 1, x, 1
    out, rows = np.zeros((len(x), dim), np.float32), np.array([[0, 0, 2, 1]], np.int32)
    scratch = np.zeros(64 + 4 * dim, np.uint8)
    args = row(
        attention.MERGE_ARGS, out=out, out_stride=out.nbytes, value_dim=dim, partial=partial,
        n_head=len(x), rows=rows, scratch=scratch,
    )  # fmt: skip

    run_all(kernels(isa)[attention.merge.spec()], args, len(x))

    assert same_bits(out, exp_bits(x)[:, None].repeat(dim, 1))


@every_isa
def test_nan_in_positions_that_a_query_cannot_see_changes_nothing(isa, kernels):
    pos = np.arange(60, 70, dtype=np.int32)
    case = AttentionCase("f16", 6, 2, 64, pos, window=20)
    run = kernels(isa)[attention.attention.spec("f16")]
    items = whole_items(pos, 6, 2)
    clean = case.run(run, items).copy()

    shape = (2, 64)
    for hidden in (0, 17, 40):  # below every window; positions after the last are poisoned anyway
        case.cache.write(hidden, np.full(shape, np.nan), np.full(shape, np.nan))

    assert same_bits(case.run(run, items), clean)


@every_isa
def test_nan_in_a_later_token_of_the_tile_leaves_earlier_queries_alone(isa, kernels):
    pos = np.arange(10, 16, dtype=np.int32)
    case = AttentionCase("f16", 3, 1, 64, pos, window=0)
    run = kernels(isa)[attention.attention.spec("f16")]
    items = whole_items(pos, 3, 1)
    clean = case.run(run, items).copy()

    case.cache.write(14, np.full((1, 64), np.nan), np.full((1, 64), np.nan))
    got = case.run(run, items)

    assert same_bits(got[:4], clean[:4])
    assert np.all(np.isnan(got[4:]))
