"""Answers: their text, why they ended, what repeats them, and that nothing stays behind."""

import gc
import math
import threading
import time
import weakref

import pytest

from gguf_runtime import Model, RequestError
from tests.tiny import QWEN3, VOCAB, ids_of

RAW = {"raw": True, "seed": 7, "temperature": 2.0, "top_k": 0, "top_p": 1, "min_p": 0}


def test_a_stream_joins_to_the_text_of_all_ids(qwen):
    for seed in range(40):
        s = qwen.stream("Hello", max_tokens=30, **RAW | {"seed": seed})
        text = "".join(s)

        assert text == s.result.text == qwen.detokenize(s.result.ids)
        assert s.result.usage.generated == len(s.result.ids)


def test_complete_gives_what_stream_gives(qwen):
    assert qwen.complete("Hello", max_tokens=30, **RAW).text == "".join(
        qwen.stream("Hello", max_tokens=30, **RAW)
    )


def test_events_come_in_pairs(qwen):
    pairs = list(qwen.stream("Hello", max_tokens=9, events=True, **RAW))

    assert {kind for kind, _ in pairs} == {"text"}
    assert "".join(t for _, t in pairs) == qwen.complete("Hello", max_tokens=9, **RAW).text


# ---- why it ended ------------------------------------------------------------------------------


def test_length_is_named_and_exact(qwen):
    for n in (0, 1, 5):
        out = qwen.complete("Hello", max_tokens=n, stop_ids=[], **RAW | {"seed": 3})

        assert out.finish_reason == "length"
        assert out.usage.generated == len(out.ids) == n


def test_the_end_of_a_turn_is_a_stop_and_no_part_of_the_answer(qwen):
    """At this temperature the end token comes sooner or later."""
    out = qwen.complete("Hello", max_tokens=-1, **RAW)

    assert out.finish_reason == "stop"
    assert out.stop is None
    assert not set(out.ids) & set(qwen.info.eos_ids)


def test_a_stop_id_is_named_and_no_part_of_the_answer(qwen):
    plain = qwen.complete("Hello", max_tokens=12, **RAW)
    stop = plain.ids[6]
    out = qwen.complete("Hello", max_tokens=12, stop_ids=[stop], **RAW)

    assert (out.finish_reason, out.stop) == ("stop", stop)
    assert out.ids == plain.ids[: plain.ids.index(stop)]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_stop_string_across_tokens_is_never_shown(qwen, n):
    plain = qwen.complete("Hello", max_tokens=40, **RAW)
    for at in range(2, len(plain.text) - n, 3):
        stop = plain.text[at : at + n]
        s = qwen.stream("Hello", max_tokens=40, stop=stop, **RAW)
        shown = "".join(s)

        assert (s.result.finish_reason, s.result.stop) == ("stop", stop)
        assert shown == s.result.text == plain.text[: plain.text.index(stop)]
        assert s.result.ids == plain.ids[: len(s.result.ids)]


def test_what_may_become_a_stop_string_is_shown_when_it_does_not(qwen):
    plain = qwen.complete("Hello", max_tokens=20, **RAW)
    out = qwen.complete("Hello", max_tokens=20, stop=[plain.text[-1] + "never", "x" * 99], **RAW)

    assert out.text == plain.text
    assert out.finish_reason == plain.finish_reason


def test_a_context_that_fills_is_named(pages):
    with Model(QWEN3, threads=1, context=40) as m:
        out = m.complete("Hello", max_tokens=-1, **RAW | {"seed": 1, "temperature": 0})

        assert out.finish_reason == "context"
        assert out.usage.prompt + out.usage.generated == 40
        assert pages(m) == 0
        out = m.complete("Hello", max_tokens=40 - out.usage.prompt, raw=True, temperature=0)
        assert out.finish_reason == "length"


def test_a_prompt_that_fills_the_context_gets_no_answer_and_one_token_more_is_refused():
    with Model(QWEN3, threads=1, context=40) as m:
        text = "@" * 40
        assert len(m.tokenize(text)) == 40
        out = m.complete(text, raw=True)
        assert (out.finish_reason, out.ids) == ("context", [])

        with pytest.raises(RequestError, match="the prompt is longer than the context") as e:
            m.complete(text + "@", raw=True)
        assert "at most 40 tokens" in str(e.value)
        assert "41, 1 too many" in str(e.value)


def test_time_ends_prompts_and_answers(small, pages):
    before = pages(small)
    endless = {"raw": True, "temperature": 0, "max_tokens": -1}
    small.complete("Hello", raw=True, max_tokens=2)
    out = small.complete("Hello", max_time=0.2, **endless)
    assert out.finish_reason in ("time", "context")  # a fast machine may fill the context
    assert out.text == small.detokenize(out.ids)
    assert out.timings.total_s < 3
    out = small.complete("@" * 8000, max_time=1e-6, **endless)
    assert (out.finish_reason, out.ids, out.text) == ("time", [], "")
    assert pages(small) == before


def test_a_stream_that_nobody_reads_was_interrupted(qwen, pages):
    before = pages(qwen)
    s = qwen.stream("Hello", **RAW)
    assert s.result.finish_reason == "interrupted"
    s.close()
    assert s.result.finish_reason == "interrupted"
    assert list(s) == []
    assert pages(qwen) == before


def leave_early(m):
    for _ in m.stream("Hello", **RAW):
        break


def close(m):
    s = m.stream("Hello", **RAW)
    next(s)
    s.close()
    s.close()
    assert s.result.finish_reason == "interrupted"
    assert s.result.text


def forget(m):
    s = m.stream("Hello", **RAW)
    next(s)
    del s


def with_block(m):
    with m.stream("Hello", **RAW) as s:
        next(s)


def fail_inside(m):
    def loop():
        for piece in m.stream("Hello", **RAW):
            int("no number" + piece)

    with pytest.raises(ValueError, match="no number"):
        loop()


def interrupt(m):
    s = m.stream("Hello", **RAW)
    next(s)
    m.backend.pick, real = raising(KeyboardInterrupt), m.backend.pick
    try:
        with pytest.raises(KeyboardInterrupt):
            next(s)
    finally:
        m.backend.pick = real
    assert s.result.finish_reason == "interrupted"
    assert s.result.text


def fail(m):
    s = m.stream("Hello", **RAW)
    next(s)
    m.backend.pick, real = raising(RuntimeError("boom")), m.backend.pick
    try:
        with pytest.raises(RuntimeError):
            list(s)
    finally:
        m.backend.pick = real
    assert s.result.finish_reason == "error"
    assert str(s.result.error) == "boom"


def raising(error):
    def pick(*args):
        raise error

    return pick


@pytest.mark.parametrize(
    "way", [leave_early, close, forget, with_block, fail_inside, interrupt, fail]
)
def test_every_way_out_frees_the_pages(qwen, pages, way):
    before = pages(qwen)
    way(qwen)

    assert pages(qwen) == before
    assert qwen.complete("Hello", max_tokens=5, **RAW).usage.generated == 5


def test_a_stream_can_be_closed_from_another_thread(small, pages):
    before = pages(small)
    s = small.stream("Hello", raw=True, temperature=0, max_tokens=-1)
    next(s)
    timer = threading.Timer(0.05, s.close)
    timer.start()
    for _ in s:
        time.sleep(0.001)
    timer.join()

    assert s.result.finish_reason == "interrupted"
    assert pages(small) == before


def test_a_stream_keeps_its_model():
    s = Model(QWEN3, threads=1).stream("Hello", max_tokens=5, **RAW)
    gc.collect()

    assert len("".join(s)) > 0


def test_a_forgotten_model_ends_its_threads():
    m = Model(QWEN3, threads=2)
    m.complete("Hello", max_tokens=2, raw=True)
    threads = m.backend.stepper.loaded.pool.team.threads
    gone = weakref.ref(m.backend)
    del m
    gc.collect()

    assert gone() is None
    assert not any(t.is_alive() for t in threads)


# ---- what repeats it ---------------------------------------------------------------------------


def test_a_seed_repeats_a_text(qwen):
    texts = {qwen.complete("Hello", max_tokens=20, **RAW).text for _ in range(5)}
    others = {qwen.complete("Hello", max_tokens=20, **RAW | {"seed": k}).text for k in range(5)}

    assert len(texts) == 1
    assert len(others) > 1


def test_a_seed_that_was_not_given_is_reported_and_repeats(qwen):
    first = qwen.complete("Hello", max_tokens=20, **RAW | {"seed": None})
    assert 0 <= first.seed < 2**32
    again = qwen.complete("Hello", max_tokens=20, **RAW | {"seed": first.seed})
    assert again.ids == first.ids
    seeds = {qwen.complete("Hello", max_tokens=1, **RAW | {"seed": None}).seed for _ in range(4)}
    assert len(seeds) > 1


def test_a_models_seed_is_for_requests_that_give_none():
    with Model(QWEN3, threads=1, seed=5) as m:
        asked = RAW | {"seed": None}
        a, b = (m.complete("Hello", max_tokens=20, **asked) for _ in range(2))
        c = m.complete("Hello", max_tokens=20, **RAW | {"seed": 5})

        assert a.seed == b.seed == 5
        assert a.ids == b.ids == c.ids


def test_temperature_zero_is_the_first_maximum_whatever_the_seed(qwen):
    out = qwen.complete("Hello", max_tokens=15, raw=True, temperature=0)
    ids = qwen.tokenize("Hello")
    for k, token in enumerate(out.ids):
        row = qwen.logits([*ids, *out.ids[:k]], "last")[0]
        assert token == int(row.argmax())  # numpy takes the first of equal ones
    assert qwen.complete("Hello", max_tokens=15, raw=True, temperature=0, seed=9).ids == out.ids


def test_profiles_change_no_token(qwen):
    plain = qwen.complete("Hello", max_tokens=15, **RAW)
    timed = qwen.complete("Hello", max_tokens=15, profile=True, **RAW)

    assert timed.ids == plain.ids
    assert plain.profile is None
    assert "GB/s" in timed.profile
    assert "answer: 14 tokens in 14 steps" in timed.profile


# ---- several at once ---------------------------------------------------------------------------


def test_streams_side_by_side_give_what_they_give_alone(qwen):
    prompts = ["Hello", "Good day", "A", "\u00e4\u00f6\u00fc and more of it"]
    alone = [qwen.complete(p, max_tokens=25, **RAW).text for p in prompts]
    streams = [qwen.stream(p, max_tokens=25, **RAW) for p in prompts]
    texts = [""] * len(prompts)
    live = set(range(len(prompts)))
    while live:
        for k in sorted(live):
            piece = next(streams[k], None)
            if piece is None:
                live.discard(k)
            else:
                texts[k] += piece

    assert texts == alone


def test_threads_share_a_model_and_get_what_they_get_alone(qwen, pages):
    before = pages(qwen)
    prompts = [f"Number {k}" for k in range(8)]
    alone = [
        [qwen.complete(p, max_tokens=6, **RAW | {"seed": n}).text for n in range(20)]
        for p in prompts
    ]
    found = [[""] * 20 for _ in prompts]  # what a thread that fails leaves is not equal

    def work(k):
        for n in range(20):
            found[k][n] = qwen.complete(prompts[k], max_tokens=6, **RAW | {"seed": n}).text

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)

    assert not any(t.is_alive() for t in threads)
    assert found == alone
    assert pages(qwen) == before


def test_nobody_starves_while_another_answers(small):
    """A second caller gets tokens before the first one's long answer is done."""
    first = small.stream("Hello", raw=True, temperature=0, max_tokens=3000)
    next(first)
    ends = []

    def long():
        for _ in first:
            pass
        ends.append("long")

    def short():
        small.complete("Hello", raw=True, temperature=0, max_tokens=8)
        ends.append("short")

    threads = [threading.Thread(target=f) for f in (long, short)]
    for t in threads:
        t.start()
    threads[1].join(120)
    first.close()
    threads[0].join(120)

    assert ends[0] == "short"


def test_the_vocabulary_of_these_tests_is_what_it_should_be(qwen):
    assert qwen.info.n_vocab == VOCAB
    assert qwen.detokenize(ids_of(3)) != ""


def test_other_samplers_give_the_same_text_alone_and_among_neighbours(small):
    kinds = [
        {"mirostat": 2},
        {"dry_multiplier": 0.8, "xtc_probability": 0.5},
        {"adaptive_target": 0.2},
        {"samplers": "temperature;top_k", "logit_bias": {5: -math.inf}},
        {},
    ]
    asked = [
        {"prompt": "Tell me", "max_tokens": 40, "seed": k, "temperature": 1.0} | kind
        for k, kind in enumerate(kinds)
    ]

    together = [out.ids for out in small.batch(asked)]

    assert together == [small.complete(**a).ids for a in asked]
    assert 5 not in together[3]
