"""`chat` at a terminal, around a stub: keys, messages, commands, what is saved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.screen import STUB, Screen

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")


@pytest.fixture
def talk(tmp_path):
    """talk(*options, columns=…): the program on the stub; its folder is tmp_path/gguf-runtime."""
    opened = []

    def start(*args: str, command: str = "chat", **how) -> Screen:
        how.setdefault("XDG_STATE_HOME", str(tmp_path))
        opened.append(Screen(command, "m", *args, program=(STUB,), **how))
        return opened[-1]

    yield start
    for screen in opened:
        screen.__exit__()


def saved(tmp_path) -> list[dict]:
    files = sorted((tmp_path / "gguf-runtime" / "chats").glob("*.json"))
    return [json.loads(f.read_text()) for f in files]


def said(tmp_path) -> list[str]:
    (one,) = saved(tmp_path)
    return [m["content"] for m in one["messages"]]


def test_a_person_chats_stops_an_answer_and_goes_on(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("first")
    row = t.prompt(row + 1)
    assert "\n> first\n1: 'first'\n>" in t.text()
    t.enter("slow")
    t.until("word word", row)
    t.interrupt()
    t.until("what was said stays", row)
    row = t.prompt(row + 2)
    (one,) = saved(tmp_path)
    assert one["messages"][3]["interrupted"] is True
    assert one["messages"][3]["content"].startswith("word word")
    t.enter("third")
    t.until("3: 'third'", row)
    t.prompt(row + 2)
    t.type("\x04")
    assert t.ended() == 0


def test_what_is_typed_during_an_answer_stands_in_the_line_and_is_not_sent(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("say " + "word " * 300)
    t.until("word word", row + 5)
    t.type("one\rtwo\x7fo!\r")
    t.until("> one\n[.] two!$", row)
    assert len(said(tmp_path)) == 2
    t.type("\r")
    t.until("2: 'one.ntwo!'", row)


def test_lines_that_come_at_once_are_not_sent_one_after_the_other(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.type("one\rtwo\rthree\r")
    t.until("1: 'one'\n> two\n[.] three$", row)
    assert said(tmp_path) == ["one", "1: 'one'"]


def test_a_pasted_text_is_one_message_shown_whole(talk, tmp_path):
    t = talk(columns=40, rows=10)
    row = t.prompt()
    text = "\n".join(f"line {k} of a pasted text" for k in range(400))
    assert len(text) > 10_000
    t.paste(text)
    t.until("line 399 of a pasted text", row)
    t.type("\r")
    row = t.prompt(row + 401)
    assert said(tmp_path)[0] == text
    shown = [r[2:] for r in t.lines() if r.startswith(("> line", ". line"))]
    assert shown == text.split("\n")


def test_alt_enter_begins_a_row_and_quotes_hold_a_block(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.type("one\x1b\rtwo")
    t.until("[.] two", row)
    t.type("\r")
    row = t.prompt(row + 3)
    t.enter('"""three')
    t.until("[.]$", row)
    t.enter("four")
    t.enter('"""')
    t.prompt(row + 4)
    assert said(tmp_path)[::2] == ["one\ntwo", "three\nfour"]


def test_the_first_interrupt_clears_the_line_the_second_tells_the_third_leaves(talk):
    t = talk()
    row = t.prompt()
    t.type("some words\x1b\rand more")
    t.until("and more", row)
    t.interrupt()
    row = t.prompt(row)
    assert "some words" not in t.text()
    t.interrupt()
    t.until("Ctrl-C again, Ctrl-D or /exit ends", row)
    t.prompt(row + 1)
    t.interrupt()
    assert t.ended() == 0


def test_a_refused_turn_does_not_end_the_conversation_and_stands_in_the_line(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("too long")
    t.until("much longer than it may be", row)
    t.until("> too long$", row + 2)
    t.interrupt()
    row = t.prompt(row + 2)
    t.enter("short")
    t.until("1: 'short'", row)


def test_run_without_a_prompt_at_a_terminal_opens_a_chat(talk):
    t = talk(command="run")
    row = t.prompt()
    t.enter("hello")
    row = t.prompt(row + 1)
    t.enter("/exit")
    assert t.ended() == 0
    assert "1: 'hello'" in t.text()


@pytest.mark.parametrize("word", ["/exit", "/bye", "/quit", "/EXIT"])
def test_words_that_end_the_conversation(talk, word):
    t = talk()
    t.prompt()
    t.enter(word)
    assert t.ended() == 0


def test_regen_undo_and_edit_change_the_last_turn_and_the_saved_one(talk, tmp_path):
    t = talk()
    row = t.prompt()
    for k, text in enumerate(("one", "two")):
        t.enter(text)
        row = t.prompt(row + 1)
        assert len(said(tmp_path)) == 2 * k + 2
    t.enter("/regen")
    row = t.prompt(row + 1)
    assert said(tmp_path) == ["one", "1: 'one'", "two", "2: 'two'"]
    t.enter("/edit other")
    row = t.prompt(row + 1)
    assert said(tmp_path) == ["one", "1: 'one'", "other", "2: 'other'"]
    t.enter("/edit")
    t.until("> other$", row)
    t.type("s\r")
    row = t.prompt(row + 2)
    assert said(tmp_path) == ["one", "1: 'one'", "others", "2: 'others'"]
    t.enter("/undo")
    t.until("taken back: others", row)
    row = t.prompt(row + 1)
    assert said(tmp_path) == ["one", "1: 'one'"]
    t.enter("/undo")
    row = t.prompt(row + 1)
    t.enter("/undo")
    t.until("there is no message to take back", row)


def test_edit_opens_the_editor_where_there_is_one(talk, tmp_path):
    editor = tmp_path / "edit or"
    editor.write_text("#!/bin/sh\nsed -i 's/one/changed/' \"$1\"\n")
    editor.chmod(0o755)
    t = talk(EDITOR=f"'{editor}'")
    row = t.prompt()
    t.enter("one")
    row = t.prompt(row + 1)
    t.enter("/edit")
    t.until("1: 'changed'", row)


def test_commands_of_other_names_and_near_misses(talk):
    t = talk()
    row = t.prompt()
    for typed, seen in (
        ("/?", "/regen +answer the last message again"),
        ("/help tokens", "/tokens: how full"),
        ("/tokns", "did you mean /tokens"),
        ("/reset", "the conversation is forgotten"),
        ("/clear", "the conversation is forgotten"),
        ("/xyzzy", "no command /xyzzy"),
        ("/set temprature 1", "did you mean /set temperature"),
        ("/set temperature -1", "outside its range|temperature"),
        ("/set top_p 0.5", "top_p 0.5"),
        ("/set stop END", "stop ..END.."),
        ("/set top_p default", "top_p 0.95"),
        ("/set", "stop ..END.. .set."),
        ("/system", "there is no system message"),
        ("/system Be brief.", "the system message is set"),
        ("/show", "system +Be brief."),
        ("/stats", "0 tokens read"),
        ("/copy", "there is no answer to copy"),
        ("/save", "/save FILE"),
        ("/load nothing", "no saved conversation"),
        ("/file nothing", "nothing: no such file"),
    ):
        t.enter(typed)
        t.until(seen, row)
        row = t.prompt(row + 1)


def test_a_slash_that_is_no_command_is_a_message(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("/usr/bin is a folder?")
    row = t.prompt(row + 1)
    t.enter(" /exit")
    row = t.prompt(row + 1)
    assert said(tmp_path)[::2] == ["/usr/bin is a folder?", " /exit"]


def test_tab_completes_commands_settings_and_paths(talk, tmp_path):
    folder = tmp_path / "näme with blank"
    folder.mkdir()
    (folder / "notes.txt").write_text("the text of a file\n")
    t = talk()
    row = t.prompt()
    t.type("/reg\t")
    t.until("/regen", row)
    t.interrupt()
    row = t.prompt(row)
    t.type("/set temp\t 0.5\r")
    t.until("temperature 0.5", row)
    row = t.prompt(row + 1)
    t.type(f"/file {tmp_path}/n\t/not\t\r")
    t.until("5 tokens, before the next message", row)
    row = t.prompt(row + 1)
    t.enter("what is it?")
    t.prompt(row + 1)
    assert said(tmp_path)[0] == "the text of a file\n\nwhat is it?"


def test_copy_speaks_to_the_terminal_s_clipboard(talk):
    t = talk()
    row = t.prompt()
    t.enter("hello")
    row = t.prompt(row + 1)
    t.enter("/copy")
    t.until("copied 10 characters", row)
    assert b"\x1b]52;c;MTogJ2hlbGxvJw==\x07" in t.raw


def test_a_conversation_goes_on_where_it_was(talk, tmp_path):
    t = talk("--system", "Be brief.")
    row = t.prompt()
    t.enter("one")
    t.prompt(row + 1)
    t.kill()
    t.ended()
    t = talk("--continue")
    t.until("assistant: 1: 'one'")
    t.until("read the conversation again: 5 tokens in")
    row = t.prompt()
    t.enter("two")
    t.prompt(row + 1)
    assert said(tmp_path) == ["Be brief.", "one", "1: 'one'", "two", "2: 'two'"]
    t.type("\x04")
    t.ended()
    t = talk("--fork")
    row = t.prompt()
    t.enter("three")
    t.prompt(row + 1)
    old, new = (
        saved(tmp_path) if len(saved(tmp_path)[0]["messages"]) == 5 else saved(tmp_path)[::-1]
    )
    assert (len(old["messages"]), len(new["messages"])) == (5, 7)
    assert new["forked_from"] == old["id"]


def test_a_message_without_an_answer_stands_in_the_line_of_the_next_time(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("one")
    row = t.prompt(row + 1)
    t.enter("slow and never read")
    t.until("word word", row)
    t.kill()
    t.ended()
    assert said(tmp_path)[2:] == ["slow and never read"]
    t = talk("--continue")
    t.until("> slow and never read$")


def test_saved_conversations_are_listed_and_chosen_by_id(talk, tmp_path):
    for text in ("first thing", "second thing"):
        t = talk()
        row = t.prompt()
        t.enter(text)
        t.prompt(row + 1)
        t.type("\x04")
        t.ended()
    done = subprocess.run(
        [sys.executable, STUB, "chat", "--list"],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = done.stdout.splitlines()
    assert [r.split("  ")[-1] for r in rows] == ["second thing", "first thing"]
    old = rows[1].split()[0]
    t = talk("--continue", old)
    t.until("assistant: 1: 'first thing'")


def test_files_are_private_and_no_save_writes_nothing(talk, tmp_path):
    t = talk("--no-save")
    row = t.prompt()
    t.enter("one")
    row = t.prompt(row + 1)
    t.enter("/exit")
    t.ended()
    assert list(tmp_path.iterdir()) == []
    t = talk()
    row = t.prompt()
    t.enter("one")
    row = t.prompt(row + 1)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 2
    assert {p.stat().st_mode & 0o777 for p in files} == {0o600}


def test_a_folder_that_cannot_be_written_is_told_once_and_the_chat_goes_on(talk, tmp_path):
    (tmp_path / "gguf-runtime").write_text("a file where the folder would be")
    t = talk()
    row = t.prompt()
    t.enter("one")
    t.until("the conversation is not saved", row)
    row = t.prompt(row + 1)
    t.enter("two")
    t.until("2: 'two'", row)


def test_a_conversation_that_two_programs_write_becomes_two(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("one")
    row = t.prompt(row + 1)
    other = talk("--continue")
    other_row = other.prompt()
    other.enter("other")
    other.prompt(other_row + 1)
    t.enter("mine")
    t.until("another program wrote to this conversation", row)
    t.prompt(row + 1)
    found = {c["messages"][2]["content"]: c for c in saved(tmp_path)}
    assert sorted(found) == ["mine", "other"]
    assert found["mine"]["forked_from"] == found["other"]["id"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_time_leaves_the_terminal_and_what_was_said(talk, tmp_path, number):
    for text in ("", "slow"):
        t = talk()
        row = t.prompt()
        if text:
            t.enter(text)
            t.until("word word", row)
        t.kill(number)
        assert t.ended() == 143
        if text:
            assert said(tmp_path)[1].startswith("word word")


def test_a_dumb_terminal_gets_a_plain_line_and_no_sequences(talk, tmp_path):
    t = talk(TERM="dumb")
    row = t.prompt()
    t.type("one\n")
    t.until("1: 'one'", row)
    row = t.prompt(row + 2)
    t.type('"""two\n')
    t.until("[.]$", row)
    t.type('three"""\n')
    t.until("2: 'two.nthree'", row)
    row = t.prompt(row + 3)
    t.type("\x03")
    t.until("Ctrl-C again", row)
    t.type("\x04")
    assert t.ended() == 0
    assert b"\x1b" not in t.raw
    assert said(tmp_path)[::2] == ["one", "two\nthree"]


def test_reasoning_is_dimmed_above_the_answer_and_no_part_of_it(talk, tmp_path):
    t = talk()
    row = t.prompt()
    t.enter("think")
    t.prompt(row + 3)
    assert "> think\nlet me think[31m\nabout it\nthe answer\n>" in t.text()
    assert b"\x1b[2mabout\x1b[0m\x1b[2m it\x1b[0m" in t.raw
    assert b"\x1b[31m" not in t.raw
    assert said(tmp_path) == ["think", "the answer"]


def test_reasoning_never_reaches_a_pipe():
    done = subprocess.run(
        [sys.executable, STUB, "chat", "m"],
        input="think\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("the answer\n", "")
