"""`chat` with models: Ctrl-C in a long prompt, a context that fills, templates, other models."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from gguf_runtime.text.tokenizer import Tokenizer
from tests.e2e.screen import Screen
from tests.tiny import QWEN3, with_template

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")

PROMISE_S = 0.2  # from Ctrl-C to the word that the answer has stopped
FACTOR = 5  # of it, on machines that do other things too
WILD = ("--temp", "9", "--top-k", "0", "--top-p", "1", "--min-p", "0")
SHORT = ("--temp", "0", "-n", "12", "--plain")


@pytest.fixture
def talk(tmp_path):
    opened = []

    def start(*args: str, **how) -> Screen:
        how.setdefault("XDG_STATE_HOME", str(tmp_path))
        opened.append(Screen("chat", *args, program=("-m", "gguf_runtime"), **how))
        return opened[-1]

    yield start
    for screen in opened:
        screen.__exit__()


@pytest.fixture
def tiny(tmp_path):
    return str(with_template(tmp_path / "tiny.gguf"))


def said(tmp_path) -> list[str]:
    (file,) = (tmp_path / "gguf-runtime" / "chats").glob("*.json")
    return [m["content"] for m in json.loads(file.read_text())["messages"]]


@pytest.mark.model("smollm2")
def test_ctrl_c_stops_a_long_prompt_and_an_answer_within_the_promise(talk, model_path, tmp_path):
    slow = ("-t", "1", "--precision", "int16")
    t = talk(str(model_path("smollm2")), "--temp", "0", *slow)
    row = t.prompt()
    t.enter("Hello")
    row = t.prompt(row + 1)
    t.paste(
        "\n".join(f"Line {k}: the quick brown fox jumps over {k * 7} dogs." for k in range(330))
    )
    t.type("\r")
    t.seen(lambda: re.search(rb"reading [0-9,]+/[0-9,]+ tokens", t.raw))
    before = time.monotonic()
    t.interrupt()
    t.until("stopped before the message was read", row)
    assert time.monotonic() - before < FACTOR * PROMISE_S
    row = t.prompt(row + 1)
    assert len(said(tmp_path)) == 2
    t.enter("Tell me a very long story.")
    t.until("([a-z]+ ){3}", row + 1)
    before = time.monotonic()
    t.interrupt()
    t.until("what was said stays", row)
    assert time.monotonic() - before < FACTOR * PROMISE_S
    t.prompt(row + 2)
    assert len(said(tmp_path)) == 4


def test_a_context_that_fills_is_told_asked_about_and_nothing_is_dropped_unasked(
    talk, tiny, tmp_path
):
    first, second, third = (
        "the first message",
        "a second one",
        "and a third one",
    )
    count = Tokenizer.from_gguf(Path(tiny)).encode
    turns = [f"<eos><bos>user: {x}<eos><bos>assistant: " for x in (first, second, third)]
    sizes = [len(count(x, parse_special=True)) for x in turns]
    used = sizes[0] - 1 + 12 + sizes[1] + 12
    context = used * 100 // 85
    t = talk(tiny, *SHORT, "-c", str(context))
    row = t.prompt()
    t.enter(first)
    row = t.prompt(row + 1)
    t.enter(second)
    t.until(f"the context is 8[456] % full \\({used} of {context} tokens\\)", row)
    row = t.prompt(row + 1)
    t.enter(third)
    t.until(f"does not fit into the context of {context} tokens", row)
    t.until("drop the oldest turn \\([0-9]+ tokens\\) and send it\\? \\[y/N\\]", row)
    t.type("n\n")
    t.until("nothing was dropped", row)
    t.until(f"> {third}$", row + 2)
    assert said(tmp_path)[::2] == [first, second]
    row = t.row()
    t.type("\r")
    t.until("\\[y/N\\]", row)
    t.type("y\n")
    t.prompt(row + 3)
    assert said(tmp_path)[::2] == [second, third]


def test_a_message_longer_than_the_context_is_refused_with_the_numbers(talk, tiny, tmp_path):
    t = talk(tiny, *SHORT, "-c", "128")
    row = t.prompt()
    t.enter("word " * 60)
    t.until("the message is longer than the context", row)
    t.until("expected at most 128 tokens, got [23][0-9][0-9]", row)
    t.until("--continue -c 256", row)


def test_an_answer_that_the_context_cuts_is_told(talk, tiny):
    t = talk(tiny, "--temp", "0", "--plain", "-c", "128")
    row = t.prompt()
    t.enter("Hello")
    t.until("is full: the answer was cut; nothing was dropped", row)
    t.prompt(row + 1)


def test_a_model_without_a_template_asks_for_one(talk, tmp_path):
    model = str(shutil.copy(QWEN3, tmp_path / "none.gguf"))
    t = talk(model)
    assert t.ended() == 1
    assert "--template" in t.text()
    t = talk(model, *SHORT, "--template", "chatml")
    row = t.prompt()
    assert "prompts are built with the template chatml" in " ".join(t.lines())
    t.enter("Hello")
    t.prompt(row + 1)
    assert said(tmp_path)[0] == "Hello"


def test_another_model_goes_on_with_the_conversation(talk, tiny, tmp_path):
    other = str(with_template(tmp_path / "other.gguf"))
    t = talk(tiny, *SHORT, "--system", "Be brief.")
    row = t.prompt()
    t.enter("Hello")
    row = t.prompt(row + 1)
    t.enter(f"/model {tmp_path / 'missing'}")
    t.until("no model and no file|no such file", row)
    row = t.prompt(row + 1)
    t.enter(f"/model {other}")
    t.until("read the conversation again: [0-9]+ tokens", row)
    row = t.prompt(row + 1)
    t.enter("And now?")
    t.prompt(row + 1)
    assert said(tmp_path)[::2] == ["Be brief.", said(tmp_path)[2], said(tmp_path)[4]]
    assert [said(tmp_path)[k] for k in (1, 3)] == ["Hello", "And now?"]


def test_a_seed_makes_regen_the_same_and_without_it_another(talk, tiny, tmp_path):
    t = talk(tiny, *SHORT, "--seed", "5", *WILD)
    row = t.prompt()
    t.enter("Hello")
    row = t.prompt(row + 1)
    first = said(tmp_path)[1]
    t.enter("/regen")
    t.until("the seed is fixed", row)
    row = t.prompt(row + 2)
    assert said(tmp_path)[1] == first
    t.enter("/set seed default")
    row = t.prompt(row + 1)
    t.enter("/regen")
    t.prompt(row + 1)
    assert said(tmp_path)[1] != first
