"""Sessions: feeding, forking and truncating change no bit, and pages come back."""

import gc

import numpy as np
import pytest

from gguf_runtime import MachineError, Model, RequestError
from tests.tiny import GEMMA3, QWEN3, VOCAB, ids_of


def same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


def alone(m, ids):
    with m.session() as s:
        return s.feed(ids)


@pytest.mark.parametrize("cuts", [[1] * 20, [3, 17], [19, 1], [7, 7, 6]])
def test_feeding_in_pieces_gives_the_bits_of_feeding_at_once(qwen, cuts):
    ids = ids_of(20)
    with qwen.session() as s:
        at = 0
        for n in cuts:
            last = s.feed(ids[at : at + n])
            at += n

        assert s.ids == ids
        assert len(s) == 20
        assert same(last, alone(qwen, ids))


def test_logits_are_the_callers_own_unless_asked_otherwise(qwen):
    with qwen.session() as s:
        own = s.feed([5, 6])
        kept = own.copy()
        view = s.feed([7], copy=False)
        expected = view.copy()
        s.feed([8])

        assert same(own, kept)
        assert not same(view, expected)
        assert same(expected, alone(qwen, [5, 6, 7]))


def test_a_prompt_longer_than_a_batch_is_read_in_batches(small):
    ids = ids_of(1200)
    with small.session() as s:
        long = s.feed(ids)
    with small.session() as s:
        for k in range(0, 1200, 100):
            short = s.feed(ids[k : k + 100])

    assert same(long, short)


def test_forks_share_the_past_and_nothing_else(qwen, pages):
    before = pages(qwen)
    ids = ids_of(70)
    with qwen.session() as a:
        a.feed(ids)
        with a.fork() as b:
            shared = pages(qwen) - before
            left = a.feed([5])
            right = b.feed([6])

            assert shared == 2  # pages of 64 positions
            assert pages(qwen) - before == 3  # the last page was copied
            assert same(left, alone(qwen, [*ids, 5]))
            assert same(right, alone(qwen, [*ids, 6]))
            assert a.ids[-1] == 5
            assert b.ids[-1] == 6
    assert pages(qwen) == before


def test_a_fork_outlives_its_parent(qwen):
    ids = ids_of(40)
    a = qwen.session()
    a.feed(ids)
    b = a.fork()
    a.close()

    assert same(b.feed([9]), alone(qwen, [*ids, 9]))
    b.close()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 99, 100])
def test_truncating_forgets_what_came_after(qwen, n):
    ids = ids_of(100)
    with qwen.session() as s:
        s.feed(ids)
        s.truncate(n)

        assert s.ids == ids[:n]
        assert same(s.feed([8, 9]), alone(qwen, [*ids[:n], 8, 9]))


@pytest.mark.parametrize("n", [2, 64, 300, 1290, 1299])
def test_truncating_behind_a_window_reads_again_and_keeps_the_bits(gemma, n):
    ids = ids_of(1300)
    with gemma.session() as s:
        s.feed(ids)
        s.truncate(n)
        assert len(s) == n
        with s.fork() as other:
            got = other.feed([7])

        assert same(got, alone(gemma, [*ids[:n], 7]))
        assert same(s.feed([7]), got)


def test_window_layers_let_go_of_their_pages(gemma, pages):
    before = pages(gemma)
    with gemma.session() as s:
        s.feed(ids_of(3000))
        full = -(-3000 // 64)

        assert pages(gemma) - before < full + 12  # all of one group, the window's few of the other
    assert pages(gemma) == before


def test_a_full_context_is_an_error_that_changes_nothing(pages):
    with Model(QWEN3, threads=1, context=64) as m, m.session() as s:
        s.feed(ids_of(60))
        used = pages(m)
        with pytest.raises(RequestError, match="context") as e:
            s.feed(ids_of(5))

        assert "at most 64" in str(e.value)
        assert "1 too many" in str(e.value)
        assert s.ids == ids_of(60)
        assert pages(m) == used
        assert same(s.feed([9]), alone(m, [*ids_of(60), 9]))
        s.feed(ids_of(3))
        assert len(s) == 64


@pytest.mark.parametrize(
    "ids", [[VOCAB], [-1], [5, 10**30], ["a"], [1.5], [True], "text", 7, None, [[1]]]
)
def test_what_is_no_token_id_is_refused_and_changes_nothing(qwen, ids):
    with qwen.session() as s:
        s.feed([5, 6])
        with pytest.raises(RequestError, match="token id"):
            s.feed(ids)
        assert s.ids == [5, 6]
    with pytest.raises(RequestError, match="token id"):
        qwen.logits(ids)


def test_no_token_at_all_is_refused(qwen):
    with qwen.session() as s, pytest.raises(RequestError, match="no tokens"):
        s.feed([])


def test_ids_may_be_an_array(qwen):
    ids = ids_of(5)
    with qwen.session() as s:
        assert same(s.feed(np.array(ids, np.int32)), alone(qwen, ids))


@pytest.mark.parametrize("n", [-1, 4, 1.0, "1", None, True])
def test_a_length_outside_the_session_is_refused(qwen, n):
    with qwen.session() as s:
        s.feed([5, 6, 7])
        with pytest.raises(RequestError, match="no such length"):
            s.truncate(n)
        assert len(s) == 3


def test_a_closed_session_says_so(qwen):
    s = qwen.session()
    s.feed([5])
    s.close()
    s.close()

    for call in (lambda: s.feed([5]), lambda: s.truncate(0), s.fork):
        with pytest.raises(RequestError, match="session is closed"):
            call()


def test_forgotten_sessions_give_their_pages_back(qwen, pages):
    before = pages(qwen)
    kept = [qwen.session() for _ in range(3)]
    for s in kept:
        s.feed(ids_of(10))
    assert pages(qwen) == before + 3
    del s
    kept.clear()
    gc.collect()

    assert pages(qwen) == before


def test_positions_choose_rows_as_a_slice_does(qwen):
    ids = ids_of(30)
    every = qwen.logits(ids)

    assert every.shape == (30, VOCAB)
    assert every.dtype == np.float32
    assert same(qwen.logits(ids, "last"), every[-1:])
    for s in (slice(3, 9), slice(None, None, 7), slice(-4, None), slice(20, 3, -5), slice(40, 50)):
        assert same(np.ascontiguousarray(qwen.logits(ids, s)), np.ascontiguousarray(every[s]))
    for chunk in (1, 7, 1000):
        assert same(qwen.logits(ids, chunk=chunk), every)
    hidden = qwen.hidden(ids)
    assert hidden.shape == (30, qwen.info.n_embd)
    assert same(qwen.hidden(ids, slice(3, 9), chunk=4), hidden[3:9])


def test_more_logits_than_a_step_can_hold_come_all_the_same(gemma):
    ids = ids_of(700)
    every = gemma.logits(ids, chunk=512)

    assert every.shape == (700, VOCAB)
    assert same(every[-1:], gemma.logits(ids, "last"))


@pytest.mark.parametrize(
    ("positions", "chunk"), [("first", None), (3, None), ("all", 0), ("all", 2.5)]
)
def test_unknown_positions_and_chunks_are_refused(qwen, positions, chunk):
    with pytest.raises(RequestError):
        qwen.logits([5, 6], positions, chunk)


def test_the_memory_of_the_cache_has_a_limit(monkeypatch):
    with Model(GEMMA3, threads=1, context=512) as m:
        cache = m.backend.stepper.cache
        monkeypatch.setattr(cache, "limit_bytes", 24 * max(a.page_bytes for a in cache.arenas))
        kept = []

        def more():
            kept.append(m.session())
            kept[-1].feed(ids_of(500))

        with pytest.raises(MachineError, match="all memory that the cache may have"):
            all(more() is None for _ in range(1000))
        assert len(kept[-1]) == 0
        for s in kept[1:]:
            s.close()

        assert same(kept[0].feed([5]), alone(m, [*ids_of(500), 5]))
        kept[0].close()
