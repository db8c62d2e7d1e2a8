"""Renderings equal those of transformers 5.24 with jinja2 3.1.6 (tests/data/text/ORIGIN.md)."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Template

NOW = datetime(2026, 1, 15, 12, 34, 56)


def check(stored: dict, conversations: list[dict]) -> None:
    template = Template(stored["template"], **stored["tokens"])
    for case in conversations:
        expected = stored["results"][case["case"]]
        options = dict(case["kwargs"])
        if "extra_kwargs" in stored:
            options |= {"functions": json.dumps(case["tools"] or []), "datetime": str(NOW)}

        def render(case=case, options=options):
            return template.render(
                case["messages"],
                case["tools"],
                add_generation_prompt=case["add_generation_prompt"],
                now=NOW,
                **options,
            )

        if "out" in expected:
            assert render() == expected["out"], (stored["name"], case["case"])
            continue
        with pytest.raises(RequestError) as caught:
            render()
        if expected["error"] == "raise_exception":
            assert expected["message"] in caught.value.what


def test_committed_templates_render_as_transformers_does(references):
    assert "SmolLM2-135M-Instruct" in references["templates"]
    for stored in references["templates"].values():
        check(stored, references["conversations"])


def test_all_stored_templates_render_as_transformers_does(golden, references):
    files = sorted((golden / "text/templates").glob("*.json"))
    stored = [json.loads(file.read_text()) for file in files]
    stored = [s for s in stored if isinstance(s, dict) and "template" in s and "results" in s]
    assert len(stored) == 61
    for s in stored:
        check(s, references["conversations"])


def test_the_template_language_is_the_one_of_transformers(references):
    assert len(references["snippets"]) == 530
    for case in references["snippets"]:
        template = Template(case["template"])
        if "out" in case:
            assert render_with(template, references["context"]) == case["out"], case
            continue
        with pytest.raises(RequestError) as caught:
            render_with(template, references["context"])
        if case["error"] == "TemplateError":
            assert case["message"] in caught.value.what


def render_with(template: Template, variables: dict) -> str:
    return template.render([], now=NOW, **variables)


def test_the_models_own_template_is_the_stored_one(references, model_path):
    from gguf_runtime.gguf import open_file

    source = open_file(model_path("smollm2")).metadata["tokenizer.chat_template"]

    assert source == references["templates"]["SmolLM2-135M-Instruct"]["template"]
