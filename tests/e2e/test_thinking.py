"""Reasoning at the command line: never on stdout, dimmed on a terminal, a field of its own in JSON."""

from __future__ import annotations

import importlib.resources
import json
import os
import pty
import subprocess
import sys

import jsonschema
import pytest

from tests.tiny import with_template

SCHEMA = json.loads(
    importlib.resources.files("gguf_runtime.cli").joinpath("run.schema.json").read_text("utf-8")
)
# Every answer begins inside the reasoning, so a budget decides when it is over.
TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>{{ who | default('assistant') }}: "
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}"
)
ARGS = ("-n", "24", "--seed", "131", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0")
THINKING = (*ARGS, "--think-budget", "6")


@pytest.fixture
def model(tmp_path) -> str:
    return str(with_template(tmp_path / "thinker.gguf", template=TEMPLATE))


@pytest.fixture
def answer(gg, model) -> dict:
    facts = json.loads(gg("run", model, "2 + 2?", *THINKING, "--json").out)
    jsonschema.validate(facts, SCHEMA)
    assert facts["reasoning"].strip()
    assert facts["text"].strip()
    assert facts["usage"]["reasoning"] == 6
    return facts


def test_reasoning_is_neither_on_stdout_nor_in_a_log(gg, model, answer):
    done = gg("run", model, "2 + 2?", *THINKING)

    assert done.out.rstrip("\n") == answer["text"].rstrip("\n")
    assert done.err == ""


def test_reasoning_goes_to_stderr_where_that_is_asked_for(gg, model, answer):
    done = gg("run", model, "2 + 2?", *THINKING, "--show-thinking")

    assert done.out.rstrip("\n") == answer["text"].rstrip("\n")
    assert done.err.strip() == answer["reasoning"].strip()
    assert "\x1b" not in done.err


def test_reasoning_is_dimmed_on_a_terminal(model, answer):
    main, other = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "gguf_runtime", "run", model, "2 + 2?", *THINKING],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other,
        env=os.environ | {"TERM": "xterm"},
        check=True,
    )
    os.close(other)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)

    assert done.stdout.decode().rstrip("\n") == answer["text"].rstrip("\n")
    assert shown.startswith("\x1b[2m")
    assert shown.endswith("\r\n")


def test_events_tell_reasoning_from_text(gg, model, answer):
    events = [
        json.loads(x) for x in gg("run", model, "2 + 2?", *THINKING, "--jsonl").out.splitlines()
    ]
    for e in events:
        jsonschema.validate(e, SCHEMA | {"$ref": "#/$defs/event"})
    deltas = [e for e in events if e["event"] == "delta"]

    assert "".join(e.get("reasoning", "") for e in deltas) == answer["reasoning"]
    assert "".join(e.get("text", "") for e in deltas) == answer["text"]


def test_think_off_gives_an_answer_without_reasoning(gg, model):
    facts = json.loads(gg("run", model, "2 + 2?", *ARGS, "--think", "off", "--json").out)

    assert facts["reasoning"] is None
    assert facts["text"]
    assert facts["usage"]["reasoning"] == 0


def test_a_template_argument_reaches_the_template(gg, model, answer):
    other = json.loads(
        gg("run", model, "2 + 2?", *THINKING, "--json", "--template-arg", 'who="someone"').out
    )

    assert other["usage"]["prompt"] != answer["usage"]["prompt"]


@pytest.mark.parametrize("word", ["x", "=1", "x=", "x=nope"])
def test_a_template_argument_that_is_no_json_is_wrong_usage(gg, model, word):
    done = gg("run", model, "hi", "--template-arg", word)

    assert done.code == 2
    assert "KEY=JSON" in done.err


def test_a_record_with_a_budget_repeats(gg, model, answer, tmp_path):
    path = str(tmp_path / "r.json")
    assert gg("run", model, "2 + 2?", *THINKING, "--record", path).code == 0

    n = len(answer["ids"])
    assert gg("replay", path).out == f"same: {n}/{n} tokens\n"
