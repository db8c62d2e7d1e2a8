"""Twenty steps of a conversation: after each, the tokens that the model computed are exactly so many."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gguf_runtime.text.tokenizer import Tokenizer
from tests.e2e.screen import Screen
from tests.tiny import with_template

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")

COUNTED = str(Path(__file__).with_name("counted_engine.py"))
OPTIONS = ("--temp", "0", "-n", "12", "--no-speculate", "-c", "40000", "--plain")
LONG = "\n".join(f"line {k} of a long text to paste" for k in range(330))  # 10,000 characters


OPEN: list[Screen] = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while OPEN:
        OPEN.pop().__exit__()


class Talk:
    """A conversation with a tiny model; `spent` is what a step has cost."""

    def __init__(self, tmp_path: Path, *options: str, columns: int = 80, **env: str) -> None:
        self.folder, self.log = tmp_path, tmp_path / "counted"
        self.model = tmp_path / "model.gguf"
        if not self.model.exists():
            with_template(self.model)
            self.log.touch()
        self.tokenizer = Tokenizer.from_gguf(self.model)
        self.before = self._total()
        self.screen = Screen(
            *("chat", str(self.model), *OPTIONS, *options),
            program=(COUNTED,),
            columns=columns,
            XDG_STATE_HOME=str(tmp_path),
            COUNTED_TOKENS=str(self.log),
            **env,
        )
        OPEN.append(self.screen)
        self.row = self.screen.prompt()

    def interrupt(self) -> None:
        self.screen.interrupt()
        self.screen.seen(lambda: "stopped" in "".join(self.screen.lines()[self.row :]))
        self.row = self.screen.prompt(self.row + 1)

    def ask(self, text: str, paste: bool = False) -> None:
        if paste:
            self.screen.paste(text)
            self.screen.type("\r")
        else:
            self.screen.enter(text)
        self.row = self.screen.prompt(self.row + 1)

    def spent(self) -> int:
        total = self._total()
        spent, self.before = total - self.before, total
        return spent

    def _total(self) -> int:
        return sum(map(int, self.log.read_text().split()))

    def stats(self) -> tuple[int, int, int]:
        """(prompt, read, generated): tokens of the last answer, as /stats tells them."""
        self.ask("/stats")
        shown = re.sub(r"[\s,]", "", "".join(self.screen.lines()[-40:]))
        prompt, read = re.findall(r"prompt(\d+)tokens:(\d+)read", shown)[-1]
        return int(prompt), int(read), int(re.findall(r"answer(\d+)tokens", shown)[-1])

    def ids(self, text: str) -> list[int]:
        """Of a text with its control tokens."""
        return self.tokenizer.encode(text, parse_special=True)

    def turn(self, text: str, first: bool = False) -> int:
        """Tokens that a message adds to a conversation, up to its answer."""
        return len(self.ids(("" if first else "<eos>") + asked(text)))

    def instead(self, text: str, old: str) -> int:
        """Of those the ones that are new where another message was read in its place."""
        a, b = self.ids(asked(text)), self.ids(asked(old))
        return len(a) - next(k for k in range(len(a)) if a[k] != b[k])

    def messages(self) -> list[dict]:
        (file,) = (self.folder / "gguf-runtime" / "chats").glob("*.json")
        found: list[dict] = json.loads(file.read_text())["messages"]
        return found


def asked(text: str) -> str:
    return f"<bos>user: {text}<eos><bos>assistant: "


CASES = [(20, {}), (80, {"NO_COLOR": "1"}), (200, {})]


@pytest.mark.parametrize(("columns", "env"), CASES, ids=["20", "80-none", "200"])
def test_every_step_of_a_conversation_computes_exactly_what_is_new(columns, env, tmp_path):
    t = Talk(tmp_path, columns=columns, **env)
    assert t.spent() == 0

    # An answer of 12 tokens is cut by its length, so its last token waits for the next turn.
    t.ask("Hello")
    assert t.spent() == t.turn("Hello", first=True) + 11
    t.ask("And now?")
    assert t.spent() == 1 + t.turn("And now?") + 11
    prompt, read, generated = t.stats()
    assert (read, generated) == (1 + t.turn("And now?"), 12)
    assert prompt == t.turn("Hello", first=True) + 12 + t.turn("And now?")
    assert t.spent() == 0

    t.ask(LONG, paste=True)
    assert len(LONG) > 10_000
    assert t.spent() == 1 + t.turn(LONG) + 11
    assert t.messages()[4]["content"] == LONG
    t.ask("/undo")
    assert t.spent() == 0
    t.ask(LONG, paste=True)
    assert t.spent() == 1 + 11  # the same again: its last token gives the logits
    t.ask("/undo")

    t.screen.type("two\x1b\rrows")
    t.screen.until("[.] rows", t.row)
    t.ask("")
    assert t.spent() == t.instead("two\nrows", LONG) + 11
    assert t.messages()[4]["content"] == "two\nrows"

    t.ask("/regen")
    assert t.spent() == 1 + 11
    t.ask("/edit two words")
    assert t.spent() == t.instead("two words", "two\nrows") + 11
    assert [m["content"] for m in t.messages()[::2]] == ["Hello", "And now?", "two words"]

    t.screen.type("never sent")
    t.screen.until("never sent$", t.row)
    t.screen.interrupt()
    t.row = t.screen.prompt(t.row)
    assert t.spent() == 0

    t.ask("/set max_tokens 20000")
    t.screen.enter("Go on")
    t.screen.seen(lambda: t._total() - t.before > t.turn("Go on") + 40)
    t.interrupt()
    spent = t.spent()
    _, read, generated = t.stats()
    assert read == 1 + t.turn("Go on")
    assert spent - read - generated in (-1, 0)  # the last token may not have been fed
    waits = read + generated - spent
    assert t.messages()[-1]["interrupted"] is True

    t.ask("/set max_tokens 12")
    t.screen.paste(LONG * 3)
    t.screen.type("\r")
    t.screen.seen(lambda: t._total() > t.before)
    t.interrupt()
    spent = t.spent()
    assert spent <= waits + t.turn(LONG * 3)
    assert len(t.messages()) == 8  # the message was not read to its end, so it is no part of it
    t.ask("Short")
    same = t.turn("Short") - t.instead("Short", LONG)  # what was read stays known
    assert spent - waits > same
    assert t.spent() == t.instead("Short", LONG) + 11

    t.ask(f"/save {tmp_path / 'saved.json'}")
    assert json.loads((tmp_path / "saved.json").read_text()) == t.messages()
    t.screen.enter("/exit")
    assert t.screen.ended() == 0
    assert t.spent() == 0

    said = t.messages()
    t = Talk(tmp_path, "--continue", columns=columns, **env)
    whole = "".join(f"<bos>{m['role']}: {m['content']}<eos>" for m in said)
    assert t.spent() == len(t.ids(whole))
    t.ask("Again")
    assert t.spent() == len(t.ids(asked("Again"))) + 11
    t.ask("/system Be brief.")
    assert t.spent() == 0
    t.ask("/clear")
    t.ask("Hello")
    system = "<bos>system: Be brief.<eos>"
    assert t.spent() == len(t.ids(system + asked("Hello"))) - 1 + 11  # <bos> is known
    t.screen.type("\x04")
    assert t.screen.ended() == 0
