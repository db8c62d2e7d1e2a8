"""Many requests at once: the same answers as one by one, in order, and a bad one stops nothing."""

import pytest

from gguf_runtime import RequestError

PROMPTS = ["Hello", "abc abd abc", "The quick brown fox", "x", "Once upon a time there was"]
OPTIONS = {"raw": True, "max_tokens": 20, "seed": 5}


def test_answers_come_in_order_and_equal_those_of_single_requests(qwen):
    outs = list(qwen.batch(PROMPTS, **OPTIONS))

    assert [o.index for o in outs] == list(range(len(PROMPTS)))
    assert [o.ids for o in outs] == [qwen.complete(p, **OPTIONS).ids for p in PROMPTS]


def test_a_bad_request_becomes_an_error_and_the_others_are_answered(qwen):
    items = ["Hello", 5, {"prompt": "x", "temprature": 1}, {"raw": True}, {"prompt": "abc"}]

    outs = list(qwen.batch(items, **OPTIONS))

    assert [o.finish_reason == "error" for o in outs] == [False, True, True, True, False]
    assert all(isinstance(o.error, RequestError) for o in outs[1:4])
    assert "did you mean temperature?" in str(outs[2].error)


def test_requests_are_read_as_they_are_needed(qwen):
    def endless():
        while True:
            yield "Hello"

    with qwen.batch(endless(), **OPTIONS) as outs:
        assert next(outs).index == 0
        assert next(outs).index == 1
    with pytest.raises(StopIteration):
        next(outs)
