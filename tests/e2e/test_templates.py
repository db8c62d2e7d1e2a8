"""Templates and reasoning at the command line."""

from __future__ import annotations

import json

import pytest

from tests.tiny import QWEN3, with_template

ALWAYS = (
    "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant: <think>\n{% endif %}{{ tail }}{# </think> #}"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    return str(with_template(tmp_path_factory.mktemp("thinker") / "t.gguf", template=ALWAYS))


def test_template_shows_the_prompt_and_its_ids(gg, thinker):
    text = gg("template", thinker, "Hi", "--system", "Be brief.")
    assert text.code == 0
    assert text.out == ("<bos>system: Be brief.<eos><bos>user: Hi<eos><bos>assistant: <think>\n")
    facts = json.loads(gg("template", thinker, "Hi", "--json").out)
    assert facts["text"] == "<bos>user: Hi<eos><bos>assistant: <think>\n"
    assert facts["count"] == len(facts["ids"]) == len(facts["pieces"])
    assert "".join(facts["pieces"]) == facts["text"]
    ids = gg("template", thinker, "Hi", "--ids").out
    assert list(map(int, ids.split())) == facts["ids"]
    assert gg("template", thinker, "--source").out == ALWAYS
    assert gg("template", thinker).out.count("<bos>user") == 2


def test_template_takes_variables_and_switches(gg, thinker):
    done = gg("template", thinker, "Hi", "--template-arg", "tail=[1, 2]", "--think", "off")
    assert done.out.endswith("<think>\n[1, 2]<think>\n\n</think>\n\n")
    assert "no switch for reasoning" in done.err
    wrong = gg("template", thinker, "Hi", "--template-arg", "tail")
    assert (wrong.code, wrong.out) == (2, "")
    assert "not KEY=JSON" in wrong.err


def test_tokenize_reads_a_conversation_as_run_does(gg, thinker, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text('[{"role": "user", "content": "Hi <bos>"}]')
    ids = gg("tokenize", thinker, "--chat", str(chat), "--ids").out
    told = gg("template", thinker, "Hi <bos>", "--ids").out
    assert ids == told != ""
    assert gg("tokenize", thinker, "text", "--chat", str(chat)).code == 2


def test_a_model_without_a_template_is_told_to_name_one(gg):
    done = gg("template", str(QWEN3), "Hi")
    assert (done.code, done.out) == (1, "")
    assert "name one with --template, such as chatml" in done.err
    done = gg("template", str(QWEN3), "Hi", "--template", "vicuna")
    assert done.out.endswith("USER: Hi ASSISTANT:")
    assert "prompts are built with the template vicuna" in done.err
    done = gg("run", str(QWEN3), "Hi", "--template", "chat_ml")
    assert done.code == 1
    assert "alpaca, chatml" in done.err


def test_reasoning_never_reaches_stdout(gg, thinker):
    plain = gg("run", thinker, "Hi", "-n", "6", "--seed", "1", "--temperature", "0")
    assert (plain.code, plain.out, plain.err) == (0, "", "")
    shown = gg(
        "run", thinker, "Hi", "-n", "6", "--seed", "1", "--temperature", "0", "--show-thinking"
    )
    facts = json.loads(
        gg("run", thinker, "Hi", "-n", "6", "--seed", "1", "--temperature", "0", "--json").out
    )
    assert shown.out == ""
    assert shown.err.strip() == facts["reasoning"].strip() != ""
    assert facts["text"] == ""
    assert facts["usage"]["reasoning"] == 6


def test_a_budget_ends_the_reasoning_and_the_answer_follows(gg, thinker):
    args = ("run", thinker, "Hi", "--seed", "1", "-n", "60", "--think-budget", "4")
    facts = json.loads(gg(*args, "--json").out)
    assert facts["usage"]["reasoning"] == 4
    assert facts["text"] != ""
    assert "</think>" not in facts["text"] + facts["reasoning"]
    events = [json.loads(line) for line in gg(*args, "--jsonl").out.splitlines()]
    deltas = [e for e in events if e["event"] == "delta"]
    assert "".join(e.get("text", "") for e in deltas) == facts["text"]
    assert "".join(e.get("reasoning", "") for e in deltas) == facts["reasoning"]
    assert gg(*args).out.rstrip("\n") == facts["text"].rstrip("\n")


def test_a_recorded_run_with_a_budget_is_replayed(gg, thinker, tmp_path):
    record = str(tmp_path / "r.json")
    args = ("--seed", "3", "-n", "40", "--think-budget", "4", "--stop", "e")
    assert gg("run", thinker, "Hi", *args, "--record", record).code == 0
    done = gg("replay", record)
    assert (done.code, done.out.split(":")[0]) == (0, "same"), done.out + done.err
