"""What cannot be done is said plainly, as one of our errors, before anything else happens."""

import math

import numpy as np
import pytest

from gguf_runtime import FileError, GGUFRuntimeError, MachineError, Model, ModelError, RequestError
from quant.errors import QuantError
from tests.gguf_bytes import STRING, pair
from tests.tiny import ARCHS, GEMMA3, QWEN3, SMALL, edited, ids_of, with_template


def test_models_that_cannot_be_had(tmp_path):
    for name in ("no-such-model", tmp_path / "missing.gguf", str(tmp_path / "missing.gguf")):
        with pytest.raises((ModelError, FileError)) as e:
            Model(name)
        assert str(e.value).split(":")[0]
    with pytest.raises((ModelError, FileError)):
        Model(tmp_path)
    (tmp_path / "text.gguf").write_text("this is no model")
    with pytest.raises(FileError, match=r"text\.gguf"):
        Model(tmp_path / "text.gguf")
    with pytest.raises(ModelError, match="experts"):
        Model(ARCHS / "mixtral.gguf")


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int4"},
        {"precision": None},
        {"cache_type": "q4_0"},
        {"cache_type": 16},
        {"threads": 0},
        {"threads": 10**6},
        {"threads": 2.0},
        {"threads": True},
        {"threads": "2"},
        {"context": 0},
        {"context": -5},
        {"context": 1.5},
        {"context": "all"},
        {"context": True},
        {"seed": -1},
        {"seed": 2**32},
        {"seed": "x"},
        {"max_memory": 0},
        {"max_memory": "1GB"},
    ],
)
def test_options_of_a_model_outside_their_range(options):
    with pytest.raises(RequestError):
        Model(QWEN3, **options)


REQUESTS = [
    {"max_tokens": -2},
    {"max_tokens": 1.5},
    {"max_tokens": True},
    {"max_tokens": "5"},
    {"max_time": 0},
    {"max_time": -1},
    {"max_time": math.nan},
    {"max_time": "1"},
    {"stop": [""]},
    {"stop": [1]},
    {"stop": 5},
    {"stop": b"x"},
    {"stop_ids": [272]},
    {"stop_ids": [-1]},
    {"stop_ids": ["a"]},
    {"stop_ids": 5},
    {"temperature": -0.1},
    {"temperature": math.inf},
    {"temperature": math.nan},
    {"top_k": 1.5},
    {"top_p": 1.1},
    {"min_p": -0.1},
    {"repeat_penalty": 0},
    {"repeat_last_n": -2},
    {"presence_penalty": math.inf},
    {"frequency_penalty": math.nan},
    {"seed": -1},
    {"seed": 2**32},
    {"temprature": 1.0},
]


@pytest.mark.parametrize("options", REQUESTS)
def test_options_of_a_request_outside_their_range(qwen, pages, options):
    before = pages(qwen)
    with pytest.raises(RequestError) as e:
        qwen.stream("Hello", raw=True, **options)
    assert str(e.value)
    assert pages(qwen) == before


def test_a_near_miss_gets_a_suggestion(qwen):
    with pytest.raises(RequestError, match="did you mean temperature"):
        qwen.complete("Hello", temprature=0)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-300},
        {"temperature": 1e-30},
        {"temperature": 1e30},
        {"temperature": 5e-324},
        {"top_k": 2**31 - 1},
        {"top_k": -1},
        {"top_p": 0, "top_k": 0},
        {"top_p": 1e-300, "top_k": 0},
        {"min_p": 1, "top_k": 0, "top_p": 1},
        {"repeat_penalty": 1e-300},
        {"repeat_penalty": 1e300},
        {"presence_penalty": 1e300, "frequency_penalty": -1e300},
        {"presence_penalty": -1e300, "frequency_penalty": 1e300},
        {"repeat_last_n": 2**31 - 1, "repeat_penalty": 1.3},
        {"seed": 2**32 - 1},
        {"max_tokens": 10**30},
        {"max_time": math.inf},
        {"max_time": 10**300},
        {"stop": ["x" * 100_000]},
        {"stop": [f"stop {k}" for k in range(1000)]},
        {"temperature": np.float32(0.5), "top_k": np.int64(5), "max_tokens": np.int32(4)},
    ],
)
def test_odd_options_within_their_range_do_no_harm(qwen, options):
    out = qwen.complete("Hello", raw=True, **{"max_tokens": 8, "seed": 1} | options)

    assert out.ids
    assert out.finish_reason in ("length", "stop", "context")


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-45, 1e-38, 1e-30, 1e-9])
def test_a_temperature_near_zero_is_as_good_as_zero(qwen, temperature):
    options = {"raw": True, "max_tokens": 12, "seed": 1}
    near = qwen.complete("Hello", temperature=temperature, **options)

    assert near.ids == qwen.complete("Hello", temperature=0, **options).ids


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"prompt": "a", "messages": [{"role": "user", "content": "b"}]},
        {"prompt": ""},
        {"prompt": "", "raw": True},
        {"prompt": b"", "raw": True, "bos": False},
        {"prompt": 5},
        {"prompt": ["a"]},
        {"prompt": "\ud800"},
        {"messages": [{"role": "user", "content": "no template here"}]},
    ],
)
def test_prompts_that_are_none(qwen, asked):
    with pytest.raises(RequestError):
        qwen.stream(**asked)


@pytest.mark.parametrize(
    "messages", [[], "Hi", {"role": "user"}, ["Hi"], [{"content": "Hi"}], [{"role": 5}], 7]
)
def test_messages_that_are_none(talker, messages):
    with pytest.raises(RequestError):
        talker.stream(messages=messages)


def test_bytes_that_are_no_text_need_a_raw_prompt(talker):
    with pytest.raises(RequestError, match="not UTF-8"):
        talker.stream(b"\xff\xfe")
    assert talker.complete(b"\xff\xfe", raw=True, max_tokens=1).usage.prompt == 2


def test_a_model_without_a_template_cannot_chat(qwen):
    with pytest.raises(RequestError, match="no chat template"):
        qwen.chat()


def test_a_prompt_without_a_template_is_continued_with_a_notice(qwen):
    out = qwen.complete("Hello", max_tokens=2, temperature=0)
    raw = qwen.complete("Hello", max_tokens=2, temperature=0, raw=True)

    assert [n.code for n in out.notices] == ["no-template"]
    assert out.ids == raw.ids
    assert raw.notices == []


# ---- numbers that are none ---------------------------------------------------------------------


def test_logits_that_are_nan_are_an_error_of_the_request(tmp_path):
    path = edited(QWEN3, tmp_path / "nan.gguf", tensors={"output_norm.weight": math.nan})
    with Model(path, threads=1) as m:
        with pytest.raises(RequestError, match="not numbers"):
            m.complete("Hello", raw=True)
        with pytest.raises(RequestError, match="not numbers"):
            m.logits([5, 6])
        with m.session() as s:
            with pytest.raises(RequestError, match="not numbers"):
                s.feed([5, 6])
            assert len(s) == 0
        assert m.backend.used_pages == 0


def test_a_key_beyond_f16_is_an_error_that_names_layer_and_cure(tmp_path):
    path = edited(GEMMA3, tmp_path / "large.gguf", tensors={"blk.3.attn_k_norm.weight": 1e6})
    with Model(path, threads=2) as m:
        with pytest.raises(RequestError, match="layer 3") as e:
            m.complete("Hello", raw=True)
        assert "--cache-type f32" in str(e.value)
        with m.session() as s, pytest.raises(RequestError, match="layer 3"):
            s.feed(ids_of(5))
        assert m.backend.used_pages == 0
    with Model(path, threads=2, cache_type="f32") as m:
        assert m.complete("Hello", raw=True, max_tokens=3).usage.generated == 3


def test_a_cache_type_that_does_not_fit_the_heads_names_one_that_does():
    with pytest.raises(RequestError, match="q8_0") as e:
        Model(GEMMA3, cache_type="q8_0")  # heads of 16
    assert "--cache-type f16" in str(e.value)


# ---- closing -----------------------------------------------------------------------------------


def test_a_closed_model_says_so(tmp_path):
    m = Model(with_template(tmp_path / "m.gguf"), threads=2)
    session, stream, chat = m.session(), m.stream("Hello", raw=True, max_tokens=50), m.chat()
    session.feed([5])
    next(stream)
    m.close()
    m.close()

    calls = (
        lambda: m.complete("Hello"),
        lambda: m.stream("Hello"),
        lambda: m.logits([5]),
        lambda: m.hidden([5]),
        m.session,
        m.chat,
        lambda: chat.send("Hi"),
        lambda: session.feed([6]),
        lambda: session.truncate(0),
        session.fork,
        lambda: list(stream),
    )
    for call in calls:
        with pytest.raises(RequestError, match="the model is closed"):
            call()
    session.close()
    chat.close()
    stream.close()
    assert m.tokenize("Hello")
    assert m.info.n_vocab == 272


def test_errors_of_quant_become_ours(monkeypatch):
    with Model(SMALL, threads=1) as m:

        def refuse(*args, **kwargs):
            raise QuantError("no such thing", expected="one", got="two", hint="do that")

        monkeypatch.setattr(m.backend.stepper, "step", refuse)
        for call in (
            lambda: m.complete("Hello", raw=True),
            lambda: m.logits([5]),
            lambda: m.session().feed([5]),
        ):
            with pytest.raises(MachineError) as e:
                call()
            assert e.value.lines() == ["no such thing", "expected one, got two", "do that"]
    monkeypatch.setattr("gguf_runtime.engine.opening.Pool", refuse)
    with pytest.raises(MachineError, match="no such thing"):
        Model(SMALL)


def test_more_logits_than_there_is_memory_for(qwen, monkeypatch):
    def none(*args, **kwargs):
        raise MemoryError("8 TB")

    monkeypatch.setattr("gguf_runtime.engine.session.np.empty", none)
    with pytest.raises(MachineError, match="no more memory"):
        qwen.logits([5, 6])


# ---- what the file says ------------------------------------------------------------------------


def test_advice_of_the_file_is_taken_where_nothing_was_asked(tmp_path):
    advice = [
        pair("general.sampling.temp", 6, 0.25),
        pair("general.sampling.top_k", 5, 3),
        pair("general.sampling.top_p", 6, 7.5),
        pair("general.sampling.min_p", STRING, "much"),
    ]
    with Model(edited(QWEN3, tmp_path / "advice.gguf", advice), threads=1) as m:
        found = m.complete("Hello", max_tokens=1, raw=True, top_k=5).sampling

        assert found["temperature"] == 0.25
        assert found["top_k"] == 5
        assert found["top_p"] == 0.95
        assert found["min_p"] == 0.05


def test_a_template_that_fails_is_an_error_of_the_request(tmp_path):
    path = with_template(tmp_path / "m.gguf", template="{{ raise_exception('not like that') }}")
    with Model(path, threads=1) as m:
        chat = m.chat()
        for call in (lambda: m.complete("Hi"), lambda: chat.send("Hi")):
            with pytest.raises(GGUFRuntimeError, match="not like that"):
                call()
        assert chat.messages == []
