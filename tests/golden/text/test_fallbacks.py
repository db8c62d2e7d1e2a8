"""Built-in templates render plain conversations as the families' own templates do."""

from __future__ import annotations

import json

import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Template, fallbacks

ALL = ("plain", "system", "multi_turn", "multi_turn_no_gen", "odd_text", "content_parts")
SHORT = ("plain", "multi_turn")
# The built-in one, a published one, and the conversations that they render alike.
PAIRS = {
    "chatml": ("chatml-OpenHermes-2.5", ALL[:-1]),
    "command-r": ("vocab-command-r", ("plain", "system", "multi_turn", "multi_turn_no_gen")),
    "deepseek": ("DeepSeek-V2", ALL[:-1]),
    "gemma": ("gemma-3-it", ("plain", "system", "multi_turn", "multi_turn_no_gen")),
    "granite": ("granite-3.0-8b-instruct", ALL[:-1]),
    "llama2": ("Llama-2-chat", ("plain", "system", "multi_turn", "multi_turn_no_gen")),
    "llama3": ("Llama-3", ("plain", "system", "multi_turn", "odd_text")),
    "mistral": ("Mistral-7B-Instruct-v0.2", SHORT),
    "phi3": ("Phi-3-mini", SHORT),
    "phi4": ("phi-4", ALL[:-1]),
    "zephyr": ("zephyr-TinyLlama-chat", ALL[:-1]),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_a_built_in_template_renders_as_its_family_does(golden, references, name):
    other, cases = PAIRS[name]
    stored = json.loads((golden / f"text/templates/{other}.json").read_text())
    template = Template(fallbacks.source(name), **stored["tokens"])
    conversations = {c["case"]: c for c in references["conversations"]}
    for case in cases:
        chat = conversations[case]
        rendered = template.render(
            chat["messages"], add_generation_prompt=chat["add_generation_prompt"]
        )
        assert rendered == stored["results"][case]["out"], case


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alpaca", "<s>S\n\n### Instruction:\nA\n\n### Response:\nB</s>\n\n"
                   "### Instruction:\nC\n\n### Response:\n"),
        ("vicuna", "<s>S USER: A ASSISTANT: B</s>USER: C ASSISTANT:"),
        ("mistral", "<s>[INST] S\n\nA [/INST]B</s>[INST] C [/INST]"),
    ],
)  # fmt: skip
def test_built_in_templates_without_a_stored_rendering_are_laid_out_as_written_here(name, expected):
    template = Template(fallbacks.source(name), "<s>", "</s>")
    chat = [("system", "S"), ("user", "A"), ("assistant", "B"), ("user", "C")]
    assert template.render([{"role": r, "content": c} for r, c in chat]) == expected


def test_a_name_that_is_no_template_is_refused_with_those_that_are():
    with pytest.raises(RequestError, match='called "chat_ml"') as caught:
        fallbacks.source("chat_ml")
    assert "chatml" in str(caught.value)


@pytest.mark.parametrize("name", sorted(fallbacks.LAYOUTS))
def test_built_in_templates_refuse_roles_that_they_do_not_know_and_join_parts(name):
    template = Template(fallbacks.source(name), "<s>", "</s>")
    with pytest.raises(RequestError, match="knows no role tool"):
        template.render([{"role": "tool", "content": "x"}])
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    joined = template.render([{"role": "user", "content": "a b"}])
    assert template.render([{"role": "user", "content": parts}]) == joined
