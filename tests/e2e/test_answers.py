"""The whole program on the two real models: answers, reasons to end, notices, chats."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

PROMPTS = json.loads(
    (Path(__file__).parents[1] / "data/greedy/prompts.json").read_text(encoding="utf-8")
)
SCHEMA = json.loads(
    importlib.resources.files("gguf_runtime.cli").joinpath("run.schema.json").read_text("utf-8")
)
# With int16 activations and an f16 cache logits stay within 0.06 of exact ones on these prompts;
# where the two best are closer than this, either may be chosen.
MARGIN = 0.1
# Two prompts of each model: the logits of all six are compared elsewhere.
CHECKED = [p for p in PROMPTS if p["name"] in ("chat", "code")]


def answer(done) -> dict:
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    jsonschema.validate(facts, SCHEMA)
    return facts


def sure(prompt) -> int:
    """Steps before the first one that could go either way."""
    return next((i for i, m in enumerate(prompt["margin"]) if m < MARGIN), len(prompt["margin"]))


@pytest.fixture(scope="session")
def warm(model_path):
    """A function from a model's name to itself, once its kernels are compiled."""
    done: set[str] = set()

    def ready(name: str) -> str:
        model_path(name)
        if name not in done:
            subprocess.run([sys.executable, "-m", "gguf_runtime", "warmup", name], check=True)
            done.add(name)
        return name

    return ready


@pytest.fixture
def smollm2(warm):
    return warm("smollm2")


@pytest.fixture
def gemma(warm):
    return warm("gemma-3-270m")


@pytest.mark.parametrize("prompt", CHECKED, ids=lambda p: f"{p['model']}-{p['name']}")
def test_greedy_text_is_that_of_exact_arithmetic(gg, model_path, prompt):
    model_path(prompt["model"])
    n = sure(prompt)
    args = ["--raw", "--special", "--temperature", "0", "-n", str(n), "--precision", "int16"]
    facts = answer(gg("run", prompt["model"], "-p", prompt["text"], *args, "--json"))
    assert facts["usage"]["prompt"] == len(prompt["ids"])
    expected = prompt["greedy"][:n]
    assert facts["ids"] == expected[: len(facts["ids"])]
    assert len(facts["ids"]) == n or facts["finish_reason"] == "stop"


def test_an_answer_is_text_on_stdout_and_nothing_on_stderr(gg, smollm2):
    done = gg("run", smollm2, "--raw", "1, 2, 3, 4, 5, 6, 7,", "--temperature", "0", "-n", "9")
    assert done.code == 0
    assert done.out.startswith(" 8, 9, 10")
    assert done.out.endswith("\n")
    assert done.err == ""


def test_stdin_comes_before_the_prompt(gg, smollm2):
    done = gg("run", smollm2, "Which city is it?", "-n", "1", "--json", stdin="I live in Oslo.\n")
    alone = gg("run", smollm2, "I live in Oslo.\n\nWhich city is it?", "-n", "1", "--json")
    assert answer(done)["usage"]["prompt"] == answer(alone)["usage"]["prompt"]


def test_the_same_seed_gives_the_same_text_for_any_number_of_threads(gg, smollm2):
    args = ("run", smollm2, "Tell a story.", "-n", "24", "--json", "--seed", "11")
    one, two = answer(gg(*args, "-t", "1")), answer(gg(*args, "-t", "2"))
    assert one["ids"] == two["ids"]
    assert one["seed"] == two["seed"] == 11
    assert (one["threads"], two["threads"]) == (1, 2)


def test_a_random_seed_is_reported_and_repeats_the_text(gg, smollm2):
    first = answer(gg("run", smollm2, "Tell a story.", "-n", "16", "--json"))
    again = answer(
        gg("run", smollm2, "Tell a story.", "-n", "16", "--json", "--seed", str(first["seed"]))
    )
    assert first["text"] == again["text"]


def test_every_reason_to_end_is_told(gg, smollm2):
    greedy = ("--temperature", "0", "--json")
    count = ("--raw", "1, 2, 3, 4, 5, 6, 7, 8,")

    def ended(*args):
        facts = answer(gg("run", smollm2, *args, *greedy))
        return facts["finish_reason"], facts

    reason, facts = ended(*count, "-n", "4")
    assert (reason, facts["usage"]["generated"], len(facts["ids"])) == ("length", 4, 4)
    reason, stopped = ended(*count, "-n", "40", "--stop", "12")
    assert (reason, stopped["stop"]) == ("stop", "12")
    assert "11" in stopped["text"]
    assert "12" not in stopped["text"]
    reason, facts = ended(*count, "-n", "40", "--stop-id", str(facts["ids"][2]))
    assert reason == "stop"
    assert len(facts["ids"]) <= 2
    reason, facts = ended(*count, "-n", "-1", "-c", "48")
    assert reason == "context"
    assert facts["context"] == {"used": 48, "limit": 48}
    reason, facts = ended(*count, "-n", "-1", "--max-time", "0.3")
    assert reason == "time"


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(gg, smollm2):
    done = gg("run", smollm2, "--raw", "word " * 100, "-c", "64")
    assert done.code == 1
    assert done.out == ""
    assert "at most 64 tokens" in done.err
    assert "too many" in done.err


def test_a_base_model_completes_plainly_and_says_so(gg, gemma):
    args = ("run", gemma, "The sky is", "-n", "3", "--temperature", "0")
    done = gg(*args)
    assert done.code == 0
    assert "notice: this model has no chat template" in done.err
    assert gg(*args, "--strict").code == 6
    assert "notice:" not in gg(*args, "--raw").err  # slow machines print how far loading is
    assert gg(*args, "--raw").out == done.out


def test_a_chat_with_a_base_model_is_refused(gg, gemma):
    done = gg("chat", gemma, stdin="hello\n")
    assert done.code in (1, 3)
    assert "no chat template" in done.err


def test_a_chat_answers_every_line_and_ends_with_its_input(gg, smollm2):
    options = ("--temperature", "0", "-n", "12")
    both = gg("chat", smollm2, *options, stdin="My name is Ada.\nSay it again.\n")
    first = gg("chat", smollm2, *options, stdin="My name is Ada.\n")
    assert (both.code, both.err) == (first.code, first.err) == (0, "")
    assert both.out.startswith(first.out)
    assert len(both.out) > len(first.out)


def test_a_turn_reads_only_what_is_new(smollm2):
    from gguf_runtime import Model

    with Model(smollm2, context=512) as m:
        talk = m.chat(system="Be brief.")
        first = talk.send("Hello", max_tokens=8, temperature=0)
        second = talk.send("And now?", max_tokens=4, temperature=0)
    read = second.usage.prompt - second.usage.cached
    assert second.usage.cached >= first.usage.prompt
    assert read <= 16


def test_profile_prints_rows_on_stderr(gg, smollm2):
    done = gg("run", smollm2, "hi", "-n", "2", "--profile")
    assert "GB/s" in done.err
    assert "attn_output" in done.err
    assert "GB/s" not in done.out


def test_bench_gives_rows_by_llama_benchs_names(gg, smollm2):
    args = ("bench", smollm2, "-p", "16", "-n", "4", "-d", "0,32", "-r", "2")
    facts = json.loads(gg(*args, "-o", "json").out)
    assert [r["test"] for r in facts["rows"]] == ["pp16", "pp16 @ d32", "tg4", "tg4 @ d32"]
    assert all(len(r["samples"]) == 2 and r["mean"] > 0 for r in facts["rows"])
    assert [r["bottleneck"].split(":")[0] for r in facts["rows"]] == ["prefill"] * 2 + [
        "decode"
    ] * 2
    assert all("ffn_down" in [k["row"] for k in r["profile"]] for r in facts["rows"])
    assert facts["limits"]["read_gb_per_s"] > 0


def test_warmup_has_nothing_to_do_the_second_time(gg, smollm2):
    assert gg("warmup", smollm2).code == 0
    again = gg("warmup", smollm2)
    assert again.out == ""
    assert "compiling" not in again.err


def test_an_instruction_set_without_kernels_is_wrong_usage(gg, smollm2):
    done = gg("run", smollm2, "hi", GGUF_RUNTIME_ISA="neon9")
    assert done.code == 2
    assert "this CPU runs: nofma" in done.err
