"""Many requests at once: the same answers as one by one, in order, and a bad one stops nothing."""

from __future__ import annotations

import itertools
import time

import pytest

from gguf_runtime import MachineError, Model, RequestError
from tests.tiny import GEMMA3, QWEN3, edited, ids_of

PROMPTS = ["Hello", "abc abd abc", "The quick brown fox", "x", "Once upon a time there was"]
OPTIONS = {"raw": True, "max_tokens": 20, "seed": 5}
MIXED = [
    {"prompt": "Hello", "temperature": 0, "max_tokens": 30},
    {"prompt": "Hello", "temperature": 1.2, "seed": 7, "top_k": 0, "top_p": 1.0},
    {"prompt": "abc abc abc", "repeat_penalty": 1.4, "presence_penalty": 0.3, "seed": 3},
    {"prompt": "abc abc", "frequency_penalty": 0.5, "repeat_last_n": 8, "temperature": 0},
    {"prompt": "The quick", "stop": ["e", "a"], "seed": 1},
    {"prompt": "The quick", "stop_ids": list(range(20, 40)), "seed": 2},
    {"prompt": "y" * 100, "max_tokens": 1},
    {"prompt": "z", "max_tokens": 0},
    {"prompt": "long " * 30, "seed": 9, "max_tokens": 40, "min_p": 0.2, "reuse": False},
]


def alone(m, item, **options):
    return m.complete(**{**options, **item})


def facts(out):
    return out.ids, out.text, out.finish_reason, out.stop, out.usage.prompt, out.seed


def test_answers_come_in_order_and_equal_those_of_single_requests(qwen):
    outs = list(qwen.batch(PROMPTS, **OPTIONS))

    assert [o.index for o in outs] == list(range(len(PROMPTS)))
    assert [o.ids for o in outs] == [qwen.complete(p, **OPTIONS).ids for p in PROMPTS]


@pytest.mark.parametrize("parallel", [1, 2, 5, None])
@pytest.mark.parametrize("name", ["qwen", "gemma", "small"])
def test_every_answer_is_that_of_a_single_request_whatever_is_asked(name, parallel, request):
    m = request.getfixturevalue(name)

    outs = list(m.batch(MIXED * 2, parallel=parallel, raw=True, seed=4))

    assert [facts(o) for o in outs] == [facts(alone(m, i, raw=True, seed=4)) for i in MIXED * 2]


def test_no_more_tokens_than_asked_for(qwen):
    items = [{"prompt": "Hello", "max_tokens": n} for n in range(6)]

    outs = list(qwen.batch(items, raw=True, temperature=0))

    assert [len(o.ids) for o in outs] == [o.usage.generated for o in outs] == list(range(6))
    assert {o.finish_reason for o in outs} == {"length"}


def test_unordered_answers_come_as_they_are_done(qwen):
    items = [{"prompt": "Hello", "max_tokens": n} for n in (60, 2, 30)]

    outs = list(qwen.batch(items, ordered=False, raw=True, temperature=0))

    assert [o.index for o in outs] == [1, 2, 0]
    assert [o.usage.generated for o in outs] == [2, 30, 60]


def test_a_bad_request_becomes_an_error_and_the_others_are_answered(qwen):
    items = ["Hello", 5, {"prompt": "x", "temprature": 1}, {"raw": True}, {"prompt": "abc"}]

    outs = list(qwen.batch(items, **OPTIONS))

    assert [o.finish_reason == "error" for o in outs] == [False, True, True, True, False]
    assert all(isinstance(o.error, RequestError) for o in outs[1:4])
    assert "did you mean temperature?" in str(outs[2].error)
    assert [o.index for o in outs] == [0, 1, 2, 3, 4]


def test_a_prompt_that_is_too_long_is_an_error_of_its_own(qwen):
    outs = list(qwen.batch(["Hello", "a" * 2000, "abc"], **OPTIONS))

    assert [o.finish_reason for o in outs] == ["length", "error", "length"]
    assert "longer than the context" in str(outs[1].error)


def test_what_fails_while_it_runs_fails_alone(qwen, pages, monkeypatch):
    """A step of several is repeated for each where it fails, so that the others go on."""
    before, step = pages(qwen), qwen.backend.step

    def failing(entries, *rest):
        if any(e.sequence.length == 12 for e in entries):
            raise RequestError("nothing goes at twelve")
        return step(entries, *rest)

    items = [{"prompt": p, "max_tokens": 4} for p in ("a", "a" * 10, "a" * 30)]
    monkeypatch.setattr(qwen.backend, "step", failing)
    outs = list(qwen.batch(items, raw=True, temperature=0, bos=False))
    monkeypatch.undo()

    assert [o.finish_reason for o in outs] == ["length", "error", "length"]
    assert [o.ids for o in outs[::2]] == [
        alone(qwen, i, raw=True, temperature=0, bos=False).ids for i in items[::2]
    ]
    assert pages(qwen) == before


def test_logits_that_are_no_numbers_are_an_error_of_every_request(tmp_path):
    path = edited(QWEN3, tmp_path / "nan.gguf", tensors={"output_norm.weight": float("nan")})
    with Model(path, threads=2) as m:
        outs = list(m.batch(["Hello", "abc"], raw=True, max_tokens=3))

    assert [o.finish_reason for o in outs] == ["error", "error"]
    assert "not numbers" in str(outs[0].error)


def test_requests_are_read_as_they_are_needed(qwen, pages):
    before, given = pages(qwen), itertools.count()

    def endless():
        while True:
            next(given)
            yield "Hello"

    with qwen.batch(endless(), parallel=3, **OPTIONS) as outs:
        assert next(outs).index == 0
        assert next(outs).index == 1
    with pytest.raises(StopIteration):
        next(outs)
    assert next(given) <= 8
    assert pages(qwen) == before


def test_one_long_answer_holds_back_a_bounded_number_of_others(qwen, monkeypatch):
    from gguf_runtime.engine import batch

    monkeypatch.setattr(batch, "WAITING", 4)
    given = itertools.count()

    def items():
        yield {"prompt": "x", "max_tokens": 200}
        for _ in range(50):
            next(given)
            yield {"prompt": "x", "max_tokens": 1}

    outs = qwen.batch(items(), parallel=2, raw=True, temperature=0)

    assert next(outs).usage.generated == 200
    assert next(given) <= 8
    outs.close()


# ---- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [QWEN3, GEMMA3], ids=["plain", "windows"])
def test_a_shared_beginning_is_read_once_though_all_requests_are_there_at_once(path, counted):
    shared = "".join(chr(97 + i % 26) for i in ids_of(300))
    items = [shared + str(k) * 4 for k in range(20)]
    with Model(path, threads=2, context=512) as m:
        prefix = len(m.tokenize(shared))
        prompts = [len(m.tokenize(i)) + m.tokenizer.add_bos for i in items]
        assert min(prompts) > prefix > 100
        counts = counted(m)

        outs = list(m.batch(items, raw=True, max_tokens=4, temperature=0))

        read = sum(counts) - sum(o.usage.generated - 1 for o in outs)
        assert read <= prefix + sum(n - prefix + 4 for n in prompts)
        assert sum(o.usage.prompt - o.usage.cached for o in outs) == read
        m.backend.forget()
        single = [m.complete(i, raw=True, max_tokens=4, temperature=0, reuse=False) for i in items]
    assert [o.ids for o in outs] == [o.ids for o in single]


def test_samples_of_one_prompt_read_it_once_and_equal_single_ones(qwen, counted):
    prompt = "".join(chr(97 + i % 26) for i in ids_of(150, 5))
    options = {"raw": True, "max_tokens": 6, "seed": 11, "temperature": 1.0}
    counts = counted(qwen)

    outs = list(qwen.batch([{"prompt": prompt, "sample": i} for i in range(6)], **options))

    n = outs[0].usage.prompt
    assert sum(counts) <= n + 6 + sum(o.usage.generated for o in outs)
    assert [o.ids for o in outs] == [
        qwen.complete(prompt, sample=i, **options).ids for i in range(6)
    ]
    assert len({tuple(o.ids) for o in outs}) > 1


def test_answers_share_steps(qwen, monkeypatch):
    widths, step = [], qwen.backend.step

    def counting(entries, *rest):
        widths.append(len(entries))
        return step(entries, *rest)

    monkeypatch.setattr(qwen.backend, "step", counting)
    outs = list(qwen.batch([f"{k} times" for k in range(12)], **OPTIONS))

    assert sum(o.usage.generated for o in outs) > 100
    assert max(widths) == 12
    assert len(widths) <= 25  # 20 tokens each, a few steps to read


# ---- memory, time, the end ---------------------------------------------------------------------


def test_where_pages_run_out_sequences_give_way_and_nothing_changes(pages):
    """Room for three sequences; twelve are asked for at once."""
    items = [{"prompt": chr(97 + k) * 40, "seed": k, "max_tokens": 150} for k in range(12)]
    with Model(QWEN3, threads=2, context=256) as m:
        cache = m.backend.stepper.cache
        cache.usual_bytes = cache.limit_bytes = 3 * cache.plan.bytes_for(192, 1)

        outs = list(m.batch(items, parallel=12, raw=True))

        assert [o.finish_reason for o in outs] == ["length"] * 12
        assert cache.memory_bytes <= cache.limit_bytes
        assert pages(m) == 0
        cache.usual_bytes = cache.limit_bytes = None
        assert [facts(o) for o in outs] == [facts(alone(m, i, raw=True)) for i in items]


def test_a_sequence_that_has_no_room_even_alone_is_an_error(pages):
    with Model(QWEN3, threads=2, context=512) as m:
        cache = m.backend.stepper.cache
        cache.usual_bytes = cache.limit_bytes = cache.plan.bytes_for(128, 1)
        items = [{"prompt": "a", "max_tokens": 10}, {"prompt": "b" * 300}, {"prompt": "c" * 90}]

        outs = list(m.batch(items, raw=True, max_tokens=5, temperature=0))

        assert [o.finish_reason for o in outs] == ["length", "error", "length"]
        assert isinstance(outs[1].error, MachineError)
        assert pages(m) == 0


def test_time_ends_one_request_and_not_the_others(small):
    items = [{"prompt": "x", "max_tokens": -1, "max_time": 0.3}, {"prompt": "y", "max_tokens": 9}]
    begin = time.perf_counter()

    outs = list(small.batch(items, raw=True, temperature=0, stop_ids=[]))

    assert [o.finish_reason for o in outs] in (["time", "length"], ["context", "length"])
    assert time.perf_counter() - begin < 5 * 0.3 + 1


def test_an_interrupted_batch_is_closed_and_loses_no_page(qwen, pages, monkeypatch):
    before, steps, step = pages(qwen), itertools.count(), qwen.backend.step

    def interrupting(entries, *rest):
        if next(steps) == 7:
            raise KeyboardInterrupt
        return step(entries, *rest)

    monkeypatch.setattr(qwen.backend, "step", interrupting)
    outs = qwen.batch(PROMPTS, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        list(outs)
    monkeypatch.undo()

    assert "closed" in repr(outs)
    assert pages(qwen) == before
    assert qwen.complete("Hello", **OPTIONS).usage.generated == 20


def test_a_batch_that_is_forgotten_loses_no_page(qwen, pages):
    before = pages(qwen)
    outs = qwen.batch(["Hello"] * 5, raw=True, max_tokens=200)
    next(outs)
    del outs

    assert pages(qwen) == before


def test_a_batch_tells_what_it_does(qwen):
    outs = qwen.batch(["Hello"] * 3, parallel=2, **OPTIONS)
    next(outs)

    assert repr(outs) == "<Batch, 2 at once, 0 running, 1 answers given>" or "running" in repr(outs)
    outs.close()
    assert "closed" in repr(outs)


@pytest.mark.parametrize("parallel", [0, -3, "many", 1.5])
def test_a_number_of_sequences_that_is_none_is_refused(qwen, parallel):
    with pytest.raises(RequestError, match="sequences at once"):
        qwen.batch(["x"], parallel=parallel)


def test_no_requests_give_no_answers(qwen):
    assert list(qwen.batch([])) == []
