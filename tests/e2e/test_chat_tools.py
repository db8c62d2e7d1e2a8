"""`chat --tools`: the functions of a file, the question before each call, what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from gguf_runtime.cli.talk import calls
from gguf_runtime.errors import FileError, RequestError
from tests.e2e.screen import STUB, Screen

TOOLS = '''
from json import dumps
import os

def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()

def _hidden(x: int) -> int:
    return x

class Thing:
    pass
'''


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.py"
    path.write_text(TOOLS)
    return str(path)


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")
def test_each_call_is_asked_about_until_always_is_said(tools, tmp_path):
    with Screen("chat", "m", "--tools", tools, program=(STUB,), XDG_STATE_HOME=str(tmp_path)) as t:
        row = t.prompt()
        t.enter("call shout hello")
        t.until(re.escape('call shout(text="hello")? [y/N/always]'), row)
        t.enter("n")
        row = t.prompt(row + 3)
        assert "← shout: declined" in t.text()
        t.enter("call shout hello")
        t.until(re.escape("[y/N/always]"), row)
        t.enter("y")
        row = t.prompt(row + 3)
        assert "← shout: HELLO" in t.text()
        assert '→ shout(text="hello")' in t.text()
        t.enter("call shout again")
        t.until(re.escape("[y/N/always]"), row)
        t.enter("always")
        row = t.prompt(row + 3)
        t.enter("call shout unasked")
        t.until("← shout: UNASKED", row)
        row = t.prompt(row + 3)
        t.enter("still there")
        t.until("still there'", row)


def test_calls_are_declined_where_nobody_can_be_asked(tools, tmp_path):
    done = subprocess.run(
        [sys.executable, STUB, "chat", "m", "--tools", tools],
        input="call shout hello\n",
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
    )
    assert done.returncode == 0
    assert done.stdout == "Well. Done.\n"
    assert "calls of tools are declined" in done.stderr
    assert "← shout: declined" in done.stderr


def test_public_functions_of_a_file_are_its_tools_or_those_that_it_lists(tools, tmp_path):
    assert [f.__name__ for f in calls.functions(tools)] == ["shout"]
    listed = tmp_path / "listed.py"
    listed.write_text(TOOLS + "\nTOOLS = [_hidden]\n")
    assert [f.__name__ for f in calls.functions(str(listed))] == ["_hidden"]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (None, FileError, "no such file"),
        ("x = 1", RequestError, "no function in it"),
        ("def f(:", FileError, "line 1: is no tools file: SyntaxError"),
        ("import nothing_like_it", FileError, "ModuleNotFoundError"),
    ],
)
def test_a_file_without_tools_is_refused_with_the_reason(tmp_path, source, error, message):
    path = tmp_path / "t.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(error, match=message):
        calls.functions(str(path))


def test_a_question_shows_all_of_a_call_on_one_line_without_its_control_characters():
    call = {"name": "f", "arguments": {"a": "x\n\x1b[2Jy", "b": "z" * 300}}
    words = calls.in_words(call, calls.ASKED)
    assert words == 'f(a="x\\n\\u001b[2Jy", b="' + "z" * 300 + '")'
    assert calls.in_words(call).endswith("characters more)")
