"""`run`, `chat` and `bench` around an engine: streams, JSON, notices, signals, pipes."""

from __future__ import annotations

import importlib.resources
import json
import os
import pty
import signal
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import jsonschema
import pytest

STUB = str(Path(__file__).with_name("stub_engine.py"))
SCHEMA = json.loads(
    importlib.resources.files("gguf_runtime.cli").joinpath("run.schema.json").read_text("utf-8")
)


def program(*args: str, stdin: str | None = None, **how):
    if "input" not in how and stdin is None:
        how.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [sys.executable, STUB, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **how,
    )


def started(*args: str, **how) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, STUB, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def answer(done) -> dict:
    facts = json.loads(done.stdout)
    jsonschema.validate(facts, SCHEMA)
    return facts


def events(done) -> list[dict]:
    event = SCHEMA | {"$ref": "#/$defs/event"}
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for e in found:
        jsonschema.validate(e, event)
    return found


def test_stdout_is_the_answer_and_stderr_is_empty():
    done = program("run", "m", "hello")
    assert done.returncode == 0
    assert done.stdout == "[('prompt', 'hello')] \n"
    assert done.stderr == ""


def test_what_was_not_asked_for_is_left_to_the_engine():
    done = program("run", "m", "x", "--temp", "0", "-n", "5", "--stop", "a", "--stop-id", "3")
    asked = dict(literal_eval(done.stdout))
    assert asked == {
        "prompt": "x",
        "temperature": 0.0,
        "max_tokens": 5,
        "stop": ["a"],
        "stop_ids": [3],
    }


def test_a_system_message_makes_messages():
    done = program("run", "m", "x", "--system-prompt", "be brief")
    roles = [(m["role"], m["content"]) for m in dict(literal_eval(done.stdout))["messages"]]
    assert roles == [("system", "be brief"), ("user", "x")]


def test_messages_come_from_a_file_before_the_prompt(tmp_path):
    file = tmp_path / "m.json"
    file.write_text('[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]')
    done = program("run", "m", "c", "--messages", str(file))
    assert [m["content"] for m in dict(literal_eval(done.stdout))["messages"]] == ["a", "b", "c"]
    file.write_text('{"role": "user"}')
    assert program("run", "m", "c", "--messages", str(file)).returncode == 1


def test_raw_passes_the_start_token_and_control_tokens_on():
    asked = dict(literal_eval(program("run", "m", "x", "--raw", "--no-bos", "--special").stdout))
    assert asked == {"prompt": "x", "raw": True, "bos": False, "special": True}
    assert dict(literal_eval(program("run", "m", "x", "--raw").stdout)) == {
        "prompt": "x",
        "raw": True,
    }


@pytest.mark.parametrize(
    "args",
    [
        ("--raw", "--system", "x"),
        ("--no-bos",),
        ("--json", "--jsonl"),
        ("-p", "y"),
        ("--temperature", "-1"),
        ("--temperature", "warm"),
        ("--precision", "int9"),
        ("--context", "big"),
        ("--max-memory", "lots"),
        ("--seed", "4294967296"),
        ("--stop", ""),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_with_the_option_named(args):
    done = program("run", "m", "x", *args)
    assert done.returncode == 2
    assert done.stdout == "" or "--json" in args
    assert done.stderr.startswith("error: ")
    assert 1 <= done.stderr.count("\n") <= 3


def test_json_is_one_object_that_fits_the_schema():
    facts = answer(program("run", "m", "hello", "--json"))
    assert facts["text"] == "[('prompt', 'hello')] "
    assert facts["finish_reason"] == "stop"
    assert facts["seed"] == 7
    assert facts["context"] == {"used": 5, "limit": 64}
    assert facts["timings"]["decode_tps"] is None  # infinity is not JSON
    assert facts["notices"] == []
    assert "error" not in facts


def test_an_error_is_told_in_json_and_on_stderr():
    done = program("run", "m", "too long", "--json")
    assert done.returncode == 1
    facts = answer(done)
    assert facts["finish_reason"] == "error"
    assert facts["error"]["type"] == "RequestError"
    assert facts["error"]["exit_code"] == 1
    assert "longer than the context" in done.stderr


def test_a_model_that_is_missing_gives_json_too():
    done = program("run", "missing", "x", "--json")
    assert done.returncode == 3
    assert answer(done)["error"]["hint"] == "gguf-runtime list"


def test_jsonl_events_join_to_the_answer():
    found = events(program("run", "noticing", "hello", "--jsonl"))
    assert [e["event"] for e in found[:2]] == ["start", "notice"]
    assert found[-1]["event"] == "end"
    text = "".join(e["text"] for e in found if e["event"] == "delta")
    assert text == found[-1]["answer"]["text"]


def test_jsonl_ends_with_the_error():
    found = events(program("run", "m", "too long", "--jsonl"))
    assert [e["event"] for e in found] == ["start", "error"]


def test_a_notice_is_on_stderr_in_json_and_counts_when_strict():
    done = program("run", "noticing", "x", "--json")
    assert done.returncode == 0
    assert done.stderr == "notice: the context is 64 tokens\n"
    assert answer(done)["notices"][0]["code"] == "context-lowered"
    assert program("run", "noticing", "x", "--strict").returncode == 6
    assert program("run", "noticing", "x", "--quiet").stderr == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_said(number, code):
    with started("run", "m", "slow", "--jsonl") as process:
        assert process.stdout is not None
        while '"delta"' not in process.stdout.readline():
            pass
        process.send_signal(number)
        rest, err = process.communicate(timeout=20)
    assert process.returncode == code
    end = json.loads(rest.splitlines()[-1])
    assert end["event"] == "end"
    assert end["answer"]["finish_reason"] == "interrupted"
    assert end["answer"]["text"].startswith("word ")
    assert err == ""


def test_a_reader_that_leaves_ends_the_answer_quietly():
    with started("run", "m", "slow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(4)
        process.stdout.close()
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""


def test_verbose_tells_speeds_on_stderr():
    done = program("run", "m", "x", "-v")
    assert "prompt 3 tokens" in done.stderr
    assert done.stdout.endswith("\n")


def test_control_bytes_reach_a_file_but_not_a_terminal():
    assert program("run", "m", "escape").stdout == "a\x1b[31mb\x07\n"
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, STUB, "run", "m", "escape"], stdin=subprocess.DEVNULL, stdout=other
    )
    os.close(other)
    process.wait(timeout=20)
    assert os.read(main, 100) == b"a[31mb\r\n"
    os.close(main)


def test_no_prompt_and_no_terminal_is_wrong_usage():
    done = program("run", "m")
    assert done.returncode == 2
    assert "no prompt" in done.stderr


def test_a_piped_chat_answers_every_line_and_ends():
    done = program("chat", "m", stdin="a\n\nb")
    assert done.returncode == 0
    assert done.stdout == "1: 'a'\n2: 'b'\n"
    assert done.stderr == ""


def test_a_chat_without_input_ends_at_once():
    done = program("chat", "m")
    assert (done.returncode, done.stdout) == (0, "")


def test_three_quotes_join_lines_of_a_chat():
    done = program("chat", "m", stdin='"""one\ntwo\n"""\nthree\n/exit\nfour\n')
    assert done.stdout == "1: 'one\\ntwo'\n2: 'three'\n"
