"""Chat templates that are given for a model: by name, as a file, as a source."""

from __future__ import annotations

import pytest

from gguf_runtime import Model
from gguf_runtime.errors import FileError, RequestError
from tests.tiny import QWEN3, TEMPLATE, with_template


def codes(model: Model) -> list[str]:
    return [n.code for n in model.notices]


def test_a_model_without_a_template_chats_with_a_built_in_one_and_says_so():
    with Model(QWEN3, context=256, threads=1, template="chatml") as model:
        assert codes(model) == ["template", "template-tokens"]
        assert "chatml, as the model has none" in model.notices[0].message
        assert "<|im_start|>, <|im_end|> are no tokens of this model" in model.notices[1].message
        ids = model.prepare("Hi").job.ids
        shown = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert model.detokenize(ids) == shown
        with model.chat() as chat:
            chat.send("Hi", max_tokens=2)
        assert [m["role"] for m in chat.messages] == ["user", "assistant"]


def test_an_ending_that_is_no_token_of_the_model_ends_a_turn_as_text():
    with Model(QWEN3, context=256, threads=1, template="chatml") as model:
        assert model.prepare("Hi").job.request.stop == ("<|im_end|>",)
        assert model.prepare("Hi", stop="x").job.request.stop == ("x", "<|im_end|>")
        assert model.prepare("Hi", raw=True).job.request.stop == ()


def test_a_given_template_stands_in_place_of_the_models_own(tmp_path):
    path = with_template(tmp_path / "own.gguf")
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    for given in (file, str(file), file.read_text()):
        with Model(path, context=256, threads=1, template=given) as model:
            assert model.detokenize(model.prepare("Hi").job.ids) == "[Hi]"
            assert "in place of the model's own" in model.notices[0].message
            assert codes(model) == ["template"]
    with Model(path, context=256, threads=1, template=TEMPLATE) as model:
        own = model.prepare("Hi").job.ids
    with Model(path, context=256, threads=1) as model:
        assert model.prepare("Hi").job.ids == own
        assert codes(model) == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("chat", RequestError, 'no built-in template is called "chat"'),
        ("{% for m in messages %}", RequestError, "the chat template cannot be read"),
        ("{{ raise_exception('no assistants') }}", RequestError, "refuses: no assistants"),
        ("{# nothing #}{{ '' }}", RequestError, "leaves every message out"),
        ("/nowhere/a.jinja", FileError, "no such file"),
    ],
)
def test_a_template_that_cannot_render_three_turns_is_refused_at_load(given, error, message):
    with pytest.raises(error, match=message):
        Model(QWEN3, context=256, threads=1, template=given)


def test_a_file_that_is_no_text_or_endless_is_no_template(tmp_path):
    binary, endless = tmp_path / "a", tmp_path / "b"
    binary.write_bytes(b"{{ \xff }}")
    endless.write_bytes(b" " * (1 << 20 | 1))
    with pytest.raises(RequestError, match="byte 3 is not UTF-8"):
        Model(QWEN3, template=binary)
    with pytest.raises(RequestError, match="too long for a chat template"):
        Model(QWEN3, template=endless)
