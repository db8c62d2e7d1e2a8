"""What begins with a slash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguf_runtime.cli.talk import change, facts
from gguf_runtime.cli.talk.talk import Talk
from gguf_runtime.errors import GGUFRuntimeError
from gguf_runtime.hub.near import suggestion

KEYS = '''Enter sends, Alt-Enter (or Esc, then Enter) begins a row, """ begins and ends a block of rows;
a pasted text is one message. Tab completes, arrows bring earlier lines back.
Ctrl-C stops an answer or clears the line; Ctrl-D ends. A blank before / makes it a message.'''


@dataclass(frozen=True, slots=True)
class Command:
    """A name, what may follow it, a line of help, what it does, and other names."""

    name: str
    takes: str
    summary: str
    run: Callable[[Talk, str], None]
    others: tuple[str, ...] = ()
    rows: bool = False  # what follows may have several rows
    paths: bool = False  # what follows is a path


def show_help(talk: Talk, word: str) -> None:
    """All commands, or one."""
    found = find(word.removeprefix("/")) if word else None
    if found is not None:
        also = f" (also {', '.join('/' + o for o in found.others)})" if found.others else ""
        talk.terminal.say(f"/{found.name} {found.takes}".rstrip() + f": {found.summary}{also}")
        return
    width = max(len(f"{c.name} {c.takes}") for c in COMMANDS) + 3
    for c in COMMANDS:
        talk.terminal.say(f"/{c.name} {c.takes}".ljust(width) + c.summary)
    talk.terminal.say(KEYS)


def leave(talk: Talk, _: str) -> None:
    """End the conversation."""
    talk.over = True


COMMANDS = (
    Command("help", "[COMMAND]", "this list, or one line of it", show_help, ("?",)),
    Command(
        "clear", "", "begin a new conversation; the old one stays saved", change.clear, ("reset",)
    ),
    Command("regen", "", "answer the last message again", change.regenerate),
    Command("undo", "", "take the last message and its answer back", change.undo),
    Command(
        "edit",
        "[TEXT]",
        "change the last message, in $EDITOR where there is one, else in the line, and send it",
        change.edit,
        rows=True,
    ),
    Command("system", "[TEXT|none]", "show or change the system message", change.system, rows=True),
    Command("save", "[FILE]", "write the messages to a file", change.save, paths=True),
    Command("load", "FILE|ID", "go on with a saved conversation", change.load, paths=True),
    Command(
        "set", "[NAME VALUE]", "change how answers are chosen; default undoes it", change.set_one
    ),
    Command("show", "", "model, template, settings and system message", facts.show),
    Command("stats", "", "speeds and tokens of the last answer", facts.stats),
    Command("tokens", "", "how full the context is, and of what", facts.tokens),
    Command(
        "file",
        "FILE…|none",
        "put the text of files before the next message",
        change.file,
        paths=True,
    ),
    Command("copy", "", "put the last answer on the clipboard", facts.copy),
    Command("think", "on|off|auto", "whether the model reasons before it answers", change.think),
    Command("model", "NAME", "go on with another model", change.model),
    Command("exit", "", "end", leave, ("bye", "quit")),
)


def find(name: str) -> Command | None:
    """The command of a name."""
    return next((c for c in COMMANDS if name == c.name or name in c.others), None)


def run(talk: Talk, text: str) -> bool:
    """Do what a line asks for; False: it is a message.

    A line is a command if it begins with a slash and a word. One that is unknown is not sent where a
    person can correct it; from a pipe it is a message.
    """
    word, _, rest = text.strip().partition("\n" if "\n" in text.strip().split(" ", 1)[0] else " ")
    name = word[1:]
    if text[:1] != "/" or not (name.isalpha() or name == "?"):
        return False
    command = find(name.lower())
    if command is None:
        if not talk.lines.interactive or "\n" in text:
            return False
        near = suggestion(name, [c.name for c in COMMANDS])
        meant = f"did you mean /{near}?" if near else "see /help"
        talk.terminal.error(
            [f"no command /{name}", f"{meant}; with a blank before the slash it is a message"]
        )
        return True
    if "\n" in rest and not command.rows:
        return False
    try:
        command.run(talk, rest.strip())
    except GGUFRuntimeError as e:
        if not talk.lines.interactive:
            raise
        talk.terminal.error(e.lines())
    return True
