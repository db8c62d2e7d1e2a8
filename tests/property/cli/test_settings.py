"""Settings: one table for all commands, from words or JSON values to what the engine takes."""

from __future__ import annotations

import pytest

from gguf_runtime.cli.settings import Form, Settings
from gguf_runtime.cli.values import UsageError


def test_what_nobody_asked_for_is_left_out():
    assert Settings().request() == {}
    assert Settings().machine() == {"offline": False}
    assert Form().request() == {}


def test_values_come_by_the_names_of_the_command_line_or_of_python():
    s = Settings().having({"max-tokens": 5, "top_p": 0.5, "stop": "x", "stop_id": [7]}, "line 3")

    assert s.request() == {"max_tokens": 5, "top_p": 0.5, "stop": ["x"], "stop_ids": [7]}
    assert s.origins["top_p"] == "line 3"
    assert Settings().request() == {}


def test_words_are_converted_like_those_of_the_command_line():
    s = Settings().having({"temperature": "0.25", "context": "4k", "no-speculate": "true"}, "/set")

    assert s.request() == {"temperature": 0.25, "speculate": False}
    assert s.machine() == {"context": "4k", "offline": False}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"temprature": 1}, "did you mean temperature?"),
        ({"temperature": -1}, "at least 0"),
        ({"temperature": "warm"}, "a number"),
        ({"temperature": True}, "a number"),
        ({"max_tokens": 2.5}, "a whole number"),
        ({"top_p": 1.5}, "0 to 1"),
        ({"cache_type": "q8"}, "did you mean q8_0?"),
        ({"stop": 3.5}, "a text"),
        ({"offline": "perhaps"}, "true or false"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_what_it_may_be(values, words):
    with pytest.raises(UsageError) as e:
        Settings().having(values, "line 3")

    assert next(iter(values)) in e.value.lines[0]
    assert words in " ".join(e.value.lines)


def test_an_empty_stop_text_is_refused():
    with pytest.raises(UsageError, match="empty"):
        Settings(stop=["a", ""]).request()


def test_options_that_only_a_raw_prompt_takes_need_it():
    assert Form(raw=True, no_bos=True, special=True).request() == {
        "raw": True,
        "special": True,
        "bos": False,
    }
    with pytest.raises(UsageError, match="--raw"):
        Form(special=True).request()
