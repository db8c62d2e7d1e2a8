"""Merging equals the rule applied naively, with work in proportion to the word."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_runtime.text.tokenizer import merge as module
from gguf_runtime.text.tokenizer.merge import SPAN, PairTable, merge

LETTERS = 3


class Pairs(PairTable):
    """Pairs of a fixed table; counts look-ups."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.count = 0

    def __getitem__(self, code):
        self.count += 1
        return super().__getitem__(code)

    def look_up(self, left, right):
        return self.table.get((left, right))


def naive(symbols: list[int], table) -> list[int]:
    """Best key first, leftmost among equals, from the start each time."""
    symbols = list(symbols)
    while True:
        found = [(table[pair][0], i) for i, pair in enumerate(pairwise(symbols)) if pair in table]
        if not found:
            return symbols
        _, i = min(found)
        symbols[i : i + 2] = [table[symbols[i], symbols[i + 1]][1]]


@st.composite
def tables(draw):
    """Keys in any order: also those that let a later merge come before an earlier one."""
    table, n = {}, LETTERS
    for _ in range(draw(st.integers(1, 8))):
        symbols = st.integers(0, n - 1)
        table[draw(symbols), draw(symbols)] = (draw(st.sampled_from([-2.5, 0, 1, 2, 3])), n)
        n += 1
    return table


@given(tables(), st.lists(st.integers(0, LETTERS - 1), max_size=60))
def test_merging_equals_the_naive_rule(table, word):
    expected = naive(word, table)

    assert merge(list(word), Pairs(table)) == expected
    if len(word) > 1:
        assert module._merge_short(list(word), Pairs(table)) == expected
        assert module._merge_long(list(word), Pairs(table)) == expected


@pytest.mark.parametrize(
    "table",
    [
        {(0, 0): (0, 1), (1, 1): (1, 2), (2, 2): (2, 3)},
        {(0, 0): (0, 1), (1, 1): (0, 2), (2, 2): (0, 3)},
        {(0, 0): (5, 1), (1, 0): (4, 2), (2, 1): (3, 0)},
    ],
    ids=["ranks", "equal scores", "better and better"],
)
def test_a_run_of_one_letter_costs_work_in_proportion_to_its_length(table):
    counts = []
    for n in (20_000, 40_000):
        pairs = Pairs(table)
        merge([0] * n, pairs)
        counts.append(pairs.count)

    assert counts[1] < 2.1 * counts[0]


def test_the_memory_of_pairs_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MEMO", 10)
    pairs = Pairs({})
    for left in range(50):
        assert pairs[left * SPAN + 1] is None
        assert len(pairs) <= 10
