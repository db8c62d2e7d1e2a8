"""`run -N`, `--record` and `replay`: several answers of one seed, and a run that is repeated."""

from __future__ import annotations

import importlib.resources
import json
import shutil

import jsonschema
import pytest

from tests.tiny import GEMMA3, QWEN3, with_template

ANSWER, RECORD = (
    json.loads(importlib.resources.files("gguf_runtime.cli").joinpath(name).read_text("utf-8"))
    for name in ("run.schema.json", "replay.schema.json")
)
# A tiny model of random weights repeats itself unless any token may come.
ANY = ("--temperature", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0")
COMPARISON = RECORD | {"$ref": "#/$defs/comparison"}


@pytest.fixture
def model(tmp_path) -> str:
    return str(with_template(tmp_path / "tiny.gguf"))


@pytest.fixture
def record(gg, model, tmp_path):
    """The path of a record of 24 sampled tokens."""
    path = tmp_path / "r.json"
    done = gg(
        "run",
        model,
        "hello",
        "-n",
        "24",
        "--seed",
        "3",
        "--stop-id",
        "2",
        "-t",
        "2",
        "--record",
        str(path),
        *ANY,
    )
    assert (done.code, done.err) == (0, "")
    jsonschema.validate(json.loads(path.read_text()), RECORD)
    return path


def compared(done) -> dict:
    facts = json.loads(done.out)
    jsonschema.validate(facts, COMPARISON)
    return facts


def test_samples_are_those_that_one_seed_gives_and_the_prompt_is_read_once(gg, model):
    args = ("run", model, "tell me a long story " * 8, "-n", "12", "--seed", "5", "--json")
    facts = json.loads(gg(*args, "-N", "3").out)
    jsonschema.validate(facts, ANSWER)
    alone = [json.loads(gg(*args, "--sample", str(i)).out) for i in range(3)]

    assert [s["ids"] for s in facts["samples"]] == [a["ids"] for a in alone]
    assert [s["text"] for s in facts["samples"]] == [a["text"] for a in alone]
    assert [s["sample"] for s in facts["samples"]] == [a["sample"] for a in alone] == [0, 1, 2]
    assert len({tuple(a["ids"]) for a in alone}) == 3
    assert facts["text"] == alone[0]["text"]
    read = [s["usage"]["prompt"] - s["usage"]["cached"] for s in facts["samples"]]
    assert read[0] == alone[0]["usage"]["prompt"]
    assert all(n < 0.2 * read[0] for n in read[1:])


def test_samples_are_parted_by_a_blank_line_or_told_by_events(gg, model):
    args = ("run", model, "hello", "-n", "6", "--seed", "5", "-N", "2")
    answers = [e["text"] for e in json.loads(gg(*args, "--json").out)["samples"]]
    events = [json.loads(line) for line in gg(*args, "--jsonl").out.splitlines()]
    for e in events:
        jsonschema.validate(e, ANSWER | {"$ref": "#/$defs/event"})

    assert gg(*args).out == "\n".join(a if a.endswith("\n") else a + "\n" for a in answers)
    assert [e["event"] for e in events] == ["start", "delta", "end", "delta", "end"]
    assert [e["answer"]["text"] for e in events if e["event"] == "end"] == answers
    assert [e["sample"] for e in events if e["event"] == "delta"] == [0, 1]


def test_samples_without_a_seed_share_a_random_one(gg, model):
    facts = json.loads(gg("run", model, "hello", "-n", "4", "-N", "2", "--json").out)
    again = gg(
        "run", model, "hello", "-n", "4", "--json", "--seed", str(facts["seed"]), "--sample", "1"
    )

    assert json.loads(again.out)["text"] == facts["samples"][1]["text"]


def test_a_replay_of_any_number_of_threads_is_the_same(gg, record):
    same = gg("replay", str(record))
    one = gg("replay", str(record), "--threads", "1")
    told = compared(gg("replay", str(record), "--threads", "1", "--json"))

    n = len(json.loads(record.read_text())["ids"])
    assert (same.code, same.out, same.err) == (0, f"same: {n}/{n} tokens\n", "")
    assert (one.code, one.out, one.err) == (0, f"same: {n}/{n} tokens\n", "")
    assert told["same"]
    assert told["settings"] == [{"name": "threads", "recorded": 2, "replayed": 1}]


def test_a_difference_is_shown_with_both_choices_and_the_setting(gg, record):
    done = gg("replay", str(record), "--seed", "4")
    again = gg("replay", str(record), "--seed", "4", "--json")
    facts = compared(again)
    told = json.loads(record.read_text())

    assert (done.code, again.code) == (6, 6)
    at = facts["first"]["at"]
    assert facts["tokens"] == at
    assert facts["first"]["recorded"]["id"] == told["ids"][at]
    assert facts["first"]["replayed"]["id"] != told["ids"][at]
    # One model, one past: the logits are the same, only the draw differs.
    rows = [facts["first"][run]["top"] for run in ("recorded", "replayed")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 5
    assert rows[0] == sorted(rows[0], key=lambda r: -r["logit"])
    assert facts["settings"] == [{"name": "seed", "recorded": 3, "replayed": 4}]
    assert done.out.startswith(f"differs: {at}/{len(told['ids'])} tokens are the same\n")
    assert "  seed: 3 recorded, 4 replayed\n" in done.out


def test_a_margin_is_the_distance_of_the_two_tokens(gg, record):
    first = compared(gg("replay", str(record), "--temperature", "0", "--json"))["first"]
    top = {r["id"]: r["logit"] for r in first["replayed"]["top"]}

    # Greedy took the best; the recorded token was drawn from behind it.
    assert first["replayed"]["id"] == first["replayed"]["top"][0]["id"]
    if first["recorded"]["id"] in top:
        expected = top[first["recorded"]["id"]] - top[first["replayed"]["id"]]
        assert first["margin"]["replayed"] == pytest.approx(expected)
    assert first["margin"]["replayed"] < 0
    assert first["margin"]["recorded"] == pytest.approx(first["margin"]["replayed"])


def test_another_model_is_a_setting_that_differs(gg, record, tmp_path):
    other = with_template(tmp_path / "other.gguf", GEMMA3)
    facts = compared(gg("replay", str(record), "--model", str(other), "--json"))

    assert not facts["same"]
    assert [s["name"] for s in facts["settings"]] == ["model"]


def test_a_shortened_record_is_found_out(gg, record):
    told = json.loads(record.read_text())
    told |= {"finish_reason": "stop", "ids": told["ids"][:5]}
    record.write_text(json.dumps(told))
    facts = compared(gg("replay", str(record), "--json"))

    assert facts["first"]["recorded"] == {
        "id": None,
        "piece": None,
        "top": facts["first"]["recorded"]["top"],
    }
    assert (facts["same"], facts["tokens"], facts["of"]) == (False, 5, 5)


def test_a_record_names_the_whole_path_of_its_model(gg, model, tmp_path):
    done = gg("run", "tiny.gguf", "hello", "-n", "4", "--seed", "3", "--record", "r.json")
    assert done.code == 0

    told = json.loads((tmp_path / "r.json").read_text())["model"]
    assert (told["name"], told["path"]) == ("tiny.gguf", str(tmp_path / "tiny.gguf"))


def test_a_record_follows_its_model_by_name(gg, record, model, tmp_path):
    shutil.move(model, tmp_path / "moved.gguf")
    gone = gg("replay", str(record))
    found = gg("replay", str(record), "-m", str(tmp_path / "moved.gguf"))

    assert gone.code == 3
    assert found.code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no record of a run"),
        ("[", "not JSON"),
        ('{"record_version": 9}', "this version cannot read"),
        ('{"record_version": 1, "ids": 3}', "this version cannot read"),
    ],
)
def test_what_is_no_record_is_said(gg, tmp_path, text, words):
    (tmp_path / "r.json").write_text(text)
    done = gg("replay", str(tmp_path / "r.json"))

    assert done.code == 3
    assert words in done.err


def test_a_record_that_cannot_be_written_is_refused_before_the_run(gg, model, tmp_path):
    done = gg("run", model, "hello", "-n", "4", "--record", str(tmp_path / "no" / "r.json"))

    assert (done.code, done.out) == (7, "")
    assert done.err == f"error: {tmp_path}/no/r.json cannot be written: no such file or directory\n"


def test_the_configuration_does_not_touch_a_replay(gg, record, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("seed = 9\ntemperature = 0")

    assert gg("replay", str(record), GGUF_RUNTIME_CONFIG=str(config)).code == 0


@pytest.mark.parametrize(
    "constraint",
    [
        ("--regex", "[a-c]{6,9}"),
        ("--choice", "abc", "--choice", "abd"),
        ("--schema", '{"enum": [17]}'),
    ],
    ids=lambda c: c[0],
)
def test_a_constrained_record_repeats_with_its_constraint(gg, model, tmp_path, constraint):
    path = tmp_path / "r.json"
    done = gg("run", model, "hello", "-n", "30", "--seed", "3", *constraint, "--record", str(path))
    assert done.code == 0, done.err
    told = json.loads(path.read_text())
    jsonschema.validate(told, RECORD)

    n = len(told["ids"])
    assert n > 0
    assert gg("replay", str(path)).out == f"same: {n}/{n} tokens\n"


def test_a_raw_record_repeats_too(gg, tmp_path):
    path = tmp_path / "raw.json"
    done = gg(
        "run", str(QWEN3), "abc", "--raw", "-n", "8", "--temperature", "0", "--record", str(path)
    )

    assert done.code == 0
    assert gg("replay", str(path)).out == "same: 8/8 tokens\n"
