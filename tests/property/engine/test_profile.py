"""Profiles: what rows read and computed, what limits them, and the sentence that says so."""

import pytest

from gguf_runtime.engine.measure import Test as Wanted
from gguf_runtime.engine.measure import measure
from gguf_runtime.engine.profile import Kind, Phase, Recorder, phases
from gguf_runtime.engine.profile_text import bottleneck
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.calls import Cost
from gguf_runtime.graph.schedule import Run
from gguf_runtime.graph.tape import RowFacts
from quant.roofs import Limits
from tests.tiny import QWEN3

LIMITS = Limits(10e9, {"dot": 400e9, "dot8": 200e9, "fma": 100e9})
MATMUL = RowFacts("blk.0 ffn_down", "matmul", "tokens", (Cost("dot", "Q4_0", 1000, 2000),))
HEAD = RowFacts("output", "matmul", "outputs", (Cost("dot8", "Q8_0", 300, 600, planes=2),))


def attention(window):
    cost = Cost("fma", key_bytes=8, key_macs=16, window=window)
    return RowFacts("blk.0 attention", "attention", "tokens", (cost,))


def recorded(rows, *steps):
    """steps: (tokens, outputs, runs); every row takes a second in each."""
    r = Recorder(rows)
    for tokens, outputs, runs in steps:
        r.add(0, [1.0] * len(rows))
        r.count(tokens, outputs, runs)
    return {
        p.name: {k.op if k.op == "attention" else k.name: k for k in p.kinds}
        for p in phases(r, LIMITS)
    }


def test_weights_are_read_once_a_step_and_multiplied_by_every_column():
    kinds = recorded([MATMUL, HEAD], (5, 1, [Run(0, 5, 0)]), (7, 0, [Run(0, 7, 5)]))["prompt"]

    assert (kinds["ffn_down"].n_bytes, kinds["ffn_down"].n_macs) == (2 * 1000, 12 * 2000)
    assert (kinds["output"].n_bytes, kinds["output"].n_macs) == (300, 600)


@pytest.mark.parametrize("window", [0, 4])
def test_attention_reads_what_the_window_lets_its_tokens_see(window):
    pos, n = 6, 3
    visible = [
        [p for p in range(q + 1) if not window or p > q - window] for q in range(pos, pos + n)
    ]

    kinds = recorded([attention(window)], (n, 1, [Run(0, n, pos)]))["prompt"]

    assert kinds["attention"].n_bytes == 8 * len({p for keys in visible for p in keys})
    assert kinds["attention"].n_macs == 16 * sum(map(len, visible))


def test_drafts_that_are_verified_belong_to_the_answer():
    found = recorded(
        [MATMUL], (4, 1, [Run(0, 4, 0)]), (1, 1, [Run(0, 1, 4)]), (3, 3, [Run(0, 3, 5)])
    )

    assert found["prompt"]["ffn_down"].n_macs == 4 * 2000
    assert found["answer"]["ffn_down"].n_macs == 4 * 2000
    assert found["answer"]["ffn_down"].n_bytes == 2 * 1000


def test_the_limit_is_the_slower_of_memory_and_registers():
    kinds = recorded([MATMUL, HEAD], (1000, 1000, [Run(0, 1000, 0)]))["answer"]

    assert kinds["ffn_down"].bound == "dot"
    assert kinds["ffn_down"].limit_s == pytest.approx(1000 * 2000 / 400e9)
    assert kinds["output"].limit_s == pytest.approx(1000 * 600 * 2 / 200e9)  # two planes


def kind(name, op, seconds, limit_s, bound, weights=""):
    n_bytes = int(limit_s * LIMITS.read) if bound == "memory" else 0
    return Kind(name, op, weights, 1, seconds, n_bytes, 0, 0.0, limit_s, bound)


def test_the_sentence_names_memory_where_it_is_the_limit():
    rows = (kind("ffn_down", "matmul", 1.0, 0.93, "memory", "Q4_K"),)

    said = bottleneck(Phase("answer", 8, 8, rows), LIMITS)

    assert said == "decode: 93 % of the measured 10 GB/s; memory is the limit"


def test_the_sentence_names_the_row_that_loses_most_of_an_answer():
    rows = (
        kind("ffn_down", "matmul", 0.6, 0.55, "memory", "Q4_K"),
        kind("attention", "attention", 0.4, 0.1, "memory"),
    )

    said = bottleneck(Phase("answer", 8, 8, rows), LIMITS)

    assert said == (
        "decode: 65 % of the measured 10 GB/s; most is lost in attention,"
        " 25 % of the measured 10 GB/s, 40 % of the time"
    )


def test_the_sentence_names_what_is_no_row():
    rows = (kind("ffn_down", "matmul", 0.5, 0.45, "memory", "Q4_K"),)

    said = bottleneck(Phase("answer", 8, 8, rows), LIMITS, seconds=1.0)

    assert said.endswith("50 % of the time is spent outside the rows")


def test_the_sentence_names_the_matmul_that_takes_most_of_a_prompt():
    rows = (
        kind("ffn_gate", "matmul", 0.75, 0.4275, "dot", "Q4_1"),
        kind("norm", "norm", 0.25, 0.0, ""),
    )

    said = bottleneck(Phase("prompt", 512, 1, rows), LIMITS)

    assert said == "prefill: matmul of ffn_gate, Q4_1, 57 % of the integer peak, 75 % of the time"


def test_a_token_reads_every_matrix_once_and_its_part_of_the_cache(qwen):
    (row,) = measure(qwen, [Wanted(0, 2, 70)], repetitions=1)

    with open_file(QWEN3) as file:  # the embedding is the head, too: read as such, once
        shapes = [t.shape for t in file.tensors.values() if len(t.shape) == 2]
    matrices = sum(2 * k * -(-rows // 16) * 16 for k, rows in shapes)  # half floats in strips
    # 2 layers, 2 heads, keys of 24 values and values padded to 32, two bytes each.
    cache = 2 * 2 * (24 + 32) * 2 * (71 + 72)
    assert row.phase.n_bytes == 2 * matrices + cache


def test_layers_with_a_window_read_no_more_than_it(gemma):
    near, far = measure(gemma, [Wanted(0, 1, 100), Wanted(0, 1, 200)], repetitions=1)

    # One layer of seven sees everything: 2 heads of 16 values for keys and for values.
    assert far.phase.n_bytes - near.phase.n_bytes == 100 * 2 * (16 + 16) * 2


def test_every_row_of_a_benchmark_says_what_limits_it(qwen):
    rows = measure(qwen, [Wanted(16, 0, 0), Wanted(0, 3, 8)], repetitions=2)

    assert [r.test.name for r in rows] == ["pp16", "tg3 @ d8"]
    assert [r.phase.tokens for r in rows] == [16, 3]
    assert rows[0].bottleneck.startswith("prefill: ")
    assert rows[1].bottleneck.startswith("decode: ")
    assert all(len(r.speeds) == 2 and r.memory_share > 0 and r.compute_share > 0 for r in rows)
