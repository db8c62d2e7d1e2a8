"""Where the prompt comes from: arguments, files, and every kind of stdin."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.prompt import gather, unescape

GATHER = """
import json, sys
from gguf_runtime.cli.prompt import gather
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.errors import GGUFRuntimeError
argument, files = json.loads(sys.argv[1])
try:
    print(json.dumps(gather(argument, None, files)))
except (UsageError, GGUFRuntimeError) as e:
    print(type(e).__name__)
print(json.dumps(sys.stdin.read() if sys.stdin and not sys.stdin.isatty() else None))
"""


def gathered(argument, files=(), **how):
    """(prompt or error's name, what was left on stdin)."""
    import json

    words = json.dumps([argument, list(files)])
    done = subprocess.run(
        [sys.executable, "-c", GATHER, words], capture_output=True, text=True, check=True, **how
    )
    first, second = done.stdout.splitlines()
    return (json.loads(first) if first[0] in '"n' else first), json.loads(second)


@pytest.fixture
def listing(tmp_path):
    path = tmp_path / "list"
    path.write_text("one\ntwo\n")
    return path


def test_a_pipe_beside_a_prompt_comes_first():
    assert gathered("Summarise", input="the log\n") == ("the log\n\nSummarise", "")


def test_a_pipe_alone_is_the_prompt():
    assert gathered(None, input="the log\nends\n") == ("the log\nends", "")


def test_a_file_on_stdin_beside_a_prompt_is_left_alone(listing):
    with listing.open() as f:
        assert gathered("x", stdin=f) == ("x", "one\ntwo\n")


def test_a_file_on_stdin_without_a_prompt_is_read(listing):
    with listing.open() as f:
        assert gathered(None, stdin=f) == ("one\ntwo", "")


def test_a_dash_reads_a_file_on_stdin(listing):
    with listing.open() as f:
        assert gathered("-", stdin=f) == ("one\ntwo", "")
    with listing.open() as f:
        assert gathered("x", ["-"], stdin=f) == ("one\ntwo\n\nx", "")


def test_files_come_before_stdin_and_stdin_before_the_prompt(tmp_path, listing):
    other = tmp_path / "other"
    other.write_text("three")
    files = [str(listing), str(other)]
    assert gathered("end", files, input="pipe")[0] == "one\ntwo\n\nthree\n\npipe\n\nend"


def test_the_null_device_gives_nothing():
    assert gathered("x", stdin=subprocess.DEVNULL) == ("x", "")
    assert gathered(None, stdin=subprocess.DEVNULL)[0] == "UsageError"


def test_an_empty_pipe_beside_a_prompt_changes_nothing():
    assert gathered("x", input="") == ("x", "")
    assert gathered(None, input="")[0] == "UsageError"


def test_nothing_at_a_terminal_asks_for_a_chat():
    main, other = pty.openpty()
    try:
        assert gathered(None, stdin=other)[0] is None
        assert gathered("x", stdin=other)[0] == "x"
    finally:
        os.close(main)
        os.close(other)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"ab\xff")
    assert gathered(None, [str(bad)], stdin=subprocess.DEVNULL)[0] == "RequestError"


def test_a_missing_file_is_refused(tmp_path):
    gone = str(tmp_path / "gone")
    assert gathered("x", [gone], stdin=subprocess.DEVNULL)[0] == "FileError"


def test_two_million_characters_pass_through_a_pipe():
    text = "ä" * 2_000_000
    assert gathered("x", input=text)[0] == text + "\n\nx"


def test_two_prompts_are_refused():
    with pytest.raises(UsageError, match="two prompts"):
        gather("a", "b", [])


def test_escapes_are_resolved_and_other_backslashes_stay():
    assert unescape(r"a\nb\tc\\d\x41\u00e9\q\x4") == "a\nb\tc\\dAé\\q\\x4"


@given(st.text())
def test_a_doubled_backslash_is_one(text):
    assert unescape(text.replace("\\", "\\\\")) == text


@pytest.mark.parametrize("text", [r"a\n", "[/b] <|im_end|> %s {x}", "-- --raw"])
def test_text_is_taken_literally(text):
    assert gathered(text, stdin=subprocess.DEVNULL)[0] == text
