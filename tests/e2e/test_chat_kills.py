"""kill -9 of `chat` at random moments: what was shown as saved is there, and every file is whole."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.e2e.screen import STUB, Screen

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")

TURNS = 4  # of a life, before it is ended at the latest


@pytest.mark.parametrize("moments", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_nothing_that_was_shown_is_lost_and_no_file_is_half(moments, tmp_path):
    dice = random.Random(moments)
    shown: list[str] = []  # messages and answers behind which a prompt has stood
    for life in range(moments):
        options = ["--continue"] if shown else []
        with Screen("chat", "m", *options, program=(STUB,), XDG_STATE_HOME=str(tmp_path)) as t:
            t.seen(lambda t=t: t.lines()[t.row()][:1] in (">", "."))  # maybe an unanswered message
            t.interrupt()
            row = t.prompt()
            end = time.monotonic() + dice.uniform(0.0, 0.5)
            for turn in range(TURNS):
                text = f"say {life}.{turn} " + "word " * dice.randrange(60)
                t.paste(text)
                t.type("\r")
                while time.monotonic() < end and not t._at_prompt(row + 2):
                    t.pump(0.01)
                if not t._at_prompt(row + 2):
                    break
                row = t.row()
                shown += [text, text[4:]]
            t.kill()
            t.ended()
            if t._at_prompt(row + 2):  # it was shown before the end
                shown += [text, text[4:]]
        saved = messages(tmp_path)
        assert saved[: len(shown)] == shown, f"life {life}"
        shown = saved[: len(saved) - len(saved) % 2]
    assert len(shown) > moments


def messages(folder: Path) -> list[str]:
    """Of the one conversation; whatever has the name of one is whole."""
    found = [json.loads(p.read_bytes()) for p in (folder / "gguf-runtime/chats").glob("[!.]*")]
    assert len(found) <= 1
    return [m["content"] for c in found for m in c["messages"]]
