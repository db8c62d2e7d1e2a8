"""Threads, context and memory: what is chosen, what is refused, and with which figures."""

import re

import numpy as np
import pytest

from gguf_runtime import MachineError, Model, RequestError
from gguf_runtime.engine import sizing
from quant import cpu
from tests.tiny import GEMMA3, QWEN3, SMALL, ids_of

MB = 10**6


def free(monkeypatch, n_bytes):
    """A machine with so much memory free, the reserve not counted."""

    class Memory:
        available_bytes = n_bytes + sizing.RESERVE

    monkeypatch.setattr(cpu, "memory", Memory)


def test_the_context_is_as_trained_where_it_fits(monkeypatch):
    free(monkeypatch, 10**12)
    plan = Model.plan(QWEN3)

    assert plan.context == 512
    assert plan.fits
    assert plan.total == plan.weights + plan.cache + plan.buffers + plan.program
    assert plan.total < plan.available == 10**12 + plan.program
    with Model(QWEN3, threads=1) as m:
        assert m.context == 512
        assert m.memory.weights == m.backend.stepper.loaded.weights_bytes
        assert m.notices == []


def test_a_plan_grows_with_context_type_and_threads():
    small, large = (Model.plan(QWEN3, n, threads=2) for n in (128, 512))

    assert large.cache == 4 * small.cache
    assert Model.plan(QWEN3, 512, cache_type="f32").cache == 2 * large.cache
    assert Model.plan(QWEN3, 512, threads=64).buffers > large.buffers
    windows = Model.plan(GEMMA3, 4096).cache
    assert windows < 4096 // 512 * Model.plan(GEMMA3, 512).cache


def test_the_context_is_lowered_to_half_of_the_memory_with_a_notice(monkeypatch):
    base = Model.plan(QWEN3, 64)
    full = Model.plan(QWEN3, 512)
    free(monkeypatch, full.total + base.total - full.program)
    plan = Model.plan(QWEN3)

    assert plan.context == 512  # never less than 512 where the model was trained with that
    monkeypatch.setattr(sizing, "SMALLEST_CONTEXT", 64)
    plan = Model.plan(QWEN3)
    assert 64 <= plan.context < 512
    assert plan.context % 64 == 0
    assert plan.total <= plan.available / 2
    assert Model.plan(QWEN3, "max").context == 512
    with Model(QWEN3) as m:
        assert m.context == plan.context
        assert [n.code for n in m.notices] == ["context-lowered"]
        assert m.complete("Hi", raw=True, max_tokens=1).notices[0].code == "context-lowered"


def test_more_than_trained_is_done_with_a_notice():
    with Model(QWEN3, threads=1, context=600) as m:
        assert m.context == 600
        assert [n.code for n in m.notices] == ["context-beyond-training"]
        assert "512" in m.notices[0].message


@pytest.mark.parametrize("context", [10**6, 10**12, 10**30])
def test_what_does_not_fit_is_refused_with_figures_and_a_context_that_fits(monkeypatch, context):
    free(monkeypatch, 100 * MB)
    for load in (Model, Model.plan):
        with pytest.raises(MachineError, match="does not fit into memory") as e:
            load(SMALL, context=context)
        text = str(e.value)
        assert re.search(
            r"[\d,]+ MB weights \+ [\d,]+ MB cache \+ [\d,]+ MB buffers \+ 50 MB program = [\d,]+ MB",
            text,
        )
        assert "got 150 MB available" in text
        fits = int(re.search(r"-c (\d+)", text)[1])
        assert Model.plan(SMALL, fits).fits


def test_max_memory_is_a_limit_of_its_own():
    need = Model.plan(QWEN3, 512)
    assert Model.plan(QWEN3, 512, max_memory=need.total).fits
    with pytest.raises(MachineError) as e:
        Model.plan(QWEN3, 512, max_memory=need.total - need.cache // 2)
    fits = int(re.search(r"-c (\d+)", str(e.value))[1])
    assert 0 < fits < 512
    with Model(QWEN3, context=fits, max_memory=need.total - need.cache // 2, threads=1) as m:
        assert m.complete("Hello", raw=True, max_tokens=2).ids
    with pytest.raises(MachineError) as e:
        Model(QWEN3, max_memory=1000)
    assert "--max-memory" in str(e.value)


@pytest.mark.parametrize("context", [1, 2, 15, 63, 64, 65])
def test_tiny_contexts_work(context):
    with Model(QWEN3, threads=1, context=context) as m:
        assert m.context == context
        with m.session() as s:
            s.feed(ids_of(context))
            with pytest.raises(RequestError, match="context"):
                s.feed([5])


def test_threads_come_from_the_environment_unless_given(monkeypatch):
    monkeypatch.setenv("GGUF_RUNTIME_THREADS", "3")
    with Model(QWEN3) as m:
        assert m.threads == 3
    with Model(QWEN3, threads=1) as m:
        assert m.threads == 1
    for text in ("0", "-1", "many", "1.5", "9" * 20):
        monkeypatch.setenv("GGUF_RUNTIME_THREADS", text)
        with pytest.raises(RequestError, match="threads"):
            Model(QWEN3)
    monkeypatch.setenv("GGUF_RUNTIME_THREADS", "")
    with Model(QWEN3) as m:
        assert m.threads == cpu.cores().threads


def test_more_threads_than_cores_change_no_bit():
    ids = ids_of(50)
    with Model(SMALL, threads=1) as m:
        one = m.logits(ids)
    with Model(SMALL, threads=64) as m:
        assert np.array_equal(m.logits(ids), one)
        assert m.complete("Hello", raw=True, max_tokens=3).usage.generated == 3


def test_exact_arithmetic_answers_through_the_same_doors(monkeypatch):
    ids = ids_of(30)
    with Model(QWEN3, threads=1) as m:
        near = m.logits(ids)
    monkeypatch.setenv("GGUF_RUNTIME_EXACT", "1")
    with Model(QWEN3) as m:
        exact = m.logits(ids)
        assert m.isa == "exact"
        assert np.abs(exact - near).max() < 0.05
        assert np.array_equal(exact[-1], m.logits(ids, "last")[0])
        with m.session() as s:
            s.feed(ids)
            s.truncate(10)
            with s.fork() as other:
                assert np.allclose(other.feed(ids[10:]), exact[-1], atol=1e-5)
        a, b = (m.complete("Hello", raw=True, max_tokens=6, seed=1) for _ in range(2))
        assert a.ids == b.ids
        assert a.profile is None
    with pytest.raises(RequestError, match="closed"):
        m.logits(ids)
