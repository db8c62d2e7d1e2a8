"""What stands on the screen of `chat` is what was said: at any width, with and without colours."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.e2e.screen import STUB, Screen

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")

PARAGRAPHS = "\n\n".join(
    f"Paragraph {k}: " + " ".join(f"word{k}x{i}" for i in range(30)) + "." for k in range(12)
)
ANSWERS = {
    "longer than the screen": PARAGRAPHS,
    "CJK": "日本語の文章は、とても長いので、どこかで折り返す必要があります。" * 4
    + "漢字 and Latin 混在 text。",
    "ZWJ emoji": "Families 👨‍👩‍👧‍👦👩‍🚀 and flags 🇩🇪🇯🇵 and skins 👍🏽 in a row 👨‍👩‍👧‍👦 " * 6,
    "an unclosed fence": "Code:\n\n```python\ndef f(x):\n    return x ** 2  # "
    + "long " * 20
    + "\n\nand more",
    "words longer than the row": "a "
    + "x" * 250
    + " b "
    + "y" * 19
    + " "
    + "z" * 20
    + " "
    + "w" * 21,
    "only spaces between": "one  two   three\n\n\nfour" + " " * 30 + "five",
    "marks that stand alone": "2 * 3 ** 4, snake_case_name, [not a link], `open, a < b > c, ~tilde, 5*",
    "what looks like mark-up of ours": "[bold]x[/bold] [/] :smile: {x} %s \\n",
}


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("colors", [True, False], ids=["colours", "none"])
@pytest.mark.parametrize("columns", [20, 80, 200])
def test_the_screen_joined_again_is_what_was_said(columns, colors, tmp_path):
    how = {} if colors else {"NO_COLOR": "1"}
    with Screen(
        "chat", "m", program=(STUB,), columns=columns, XDG_STATE_HOME=str(tmp_path), **how
    ) as t:
        row = t.prompt()
        for name, text in ANSWERS.items():
            t.paste(f"say {text}")
            t.type("\r")
            end = t.prompt(row + 2)
            shown = bare("\n".join(t.lines()[row:end]))
            question = bare("> say " + text.replace("\n", "\n. "))
            assert shown.startswith(question), name
            assert shown[len(question) :] == bare(text), name
            row = end
        assert (b"\x1b[36m" in t.raw) == colors  # code
        t.type("\x04")
        assert t.ended() == 0
    (file,) = (tmp_path / "gguf-runtime" / "chats").iterdir()
    said = [m["content"] for m in json.loads(file.read_text())["messages"]]
    assert said[1::2] == list(ANSWERS.values())


@pytest.mark.parametrize("sizes", [[(20, 24), (80, 10)], [(80, 24), (21, 12), (5, 24), (130, 40)]])
def test_a_window_that_changes_while_an_answer_comes_loses_and_doubles_nothing(sizes, tmp_path):
    columns, rows = sizes[0]
    with Screen(
        "chat", "m", program=(STUB,), columns=columns, rows=rows, XDG_STATE_HOME=str(tmp_path)
    ) as t:
        t.prompt()
        t.enter("say-slowly " + PARAGRAPHS.replace("\n\n", " / "))
        for k, size in enumerate([*sizes[1:], sizes[0]]):
            t.seen(lambda k=k: len(re.findall(rf"word{2 * k + 1}x7\D", bare(t.text()))) == 2)
            t.resize(*size)
        t.seen(lambda: bare(t.text()).endswith(">") and t.screen.cursor.x == 2)
        shown = bare(t.text()).split(">say-slowly")[1]
    text = bare(PARAGRAPHS.replace("\n\n", " / "))
    assert shown == f"{text}{text}>"


def test_below_ten_columns_nothing_is_wrapped(tmp_path):
    with Screen("chat", "m", program=(STUB,), columns=9, XDG_STATE_HOME=str(tmp_path)) as t:
        row = t.prompt()
        t.enter("say one two three four five six")
        t.until("five six"[:4], row)
        t.prompt(row + 3)
    assert b"one two three four five six" in re.sub(rb"\x1b\[[0-9;]*m", b"", t.raw)


def test_plain_shows_what_the_model_writes(tmp_path):
    text = "# Title\n\n- **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    with Screen("chat", "m", "--plain", program=(STUB,), XDG_STATE_HOME=str(tmp_path)) as t:
        row = t.prompt()
        t.paste(f"say {text}")
        t.type("\r")
        end = t.prompt(row + 10)
        shown = "\n".join(t.lines()[row:end])
    assert shown.endswith(text)


def test_marks_become_what_they_mean(tmp_path):
    text = (
        "# A *fine* title\n\n- one **bold** word\n- `code` and [name](http://x.y)\n\n> quoted\n\n"
        "| name | number |\n|:---|---:|\n| 日本 | 1 |\n| `b` | 22 |\n\nend"
    )
    with Screen("chat", "m", program=(STUB,), XDG_STATE_HOME=str(tmp_path)) as t:
        row = t.prompt()
        t.paste(f"say {text}")
        t.type("\r")
        end = t.prompt(row + 20)
        shown = "\n".join(t.lines()[row:end])
        raw = t.raw.decode()
    assert shown.endswith(
        "A fine title\n\n• one bold word\n• code and name (http://x.y)\n\n│ quoted\n\n"
        "╭──────┬────────╮\n│ name │ number │\n├──────┼────────┤\n│ 日本 │      1 │\n"
        "│ b    │     22 │\n╰──────┴────────╯\n\nend"
    )
    assert "\x1b[1mbold\x1b[0m" in raw
    assert "\x1b[36mcode\x1b[0m" in raw


def test_control_bytes_of_an_answer_do_nothing(tmp_path):
    with Screen("chat", "m", program=(STUB,), XDG_STATE_HOME=str(tmp_path)) as t:
        row = t.prompt()
        t.enter("hostile")
        t.prompt(row + 2)
        assert "red]0;title, bell" in t.text()
        assert b"\x1b[31m" not in t.raw
        assert b"\x1b]" not in t.raw
        assert b"\x07" not in t.raw
