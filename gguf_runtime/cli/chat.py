"""`chat`: a conversation at the terminal; each turn reads only what is new."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from gguf_runtime.cli.load import refuse_without_template
from gguf_runtime.cli.settings import Settings
from gguf_runtime.cli.talk.line import open_lines
from gguf_runtime.cli.talk.store import ID, Store, private_dir, state_dir
from gguf_runtime.cli.talk.talk import Talk, Wishes
from gguf_runtime.cli.terminal import Terminal, clean, current
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import ExitCode, GGUFRuntimeError

OptionalModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="a name that `list` shows, a GGUF file, or a folder with one; with --continue the one of"
        " the conversation, if left out",
    ),
]
Which = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="the conversation of --continue or --fork; the last one"),
]
Resume = Annotated[
    bool,
    typer.Option("--continue", rich_help_panel="prompt", help="go on with a saved conversation"),
]
Fork = Annotated[
    bool,
    typer.Option("--fork", rich_help_panel="prompt", help="go on with a copy of a saved one"),
]
Listed = Annotated[
    bool, typer.Option("--list", rich_help_panel="output", help="list saved conversations")
]
NoSave = Annotated[
    bool,
    typer.Option(
        "--no-save", rich_help_panel="output", help="write nothing: no conversation, no history"
    ),
]
Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="FILE.py",
        rich_help_panel="prompt",
        help="functions that the model may call; each call is asked about first",
    ),
]
PlainText = Annotated[
    bool,
    typer.Option(
        "--plain",
        rich_help_panel="output",
        help="show answers as they are written, not as Markdown",
    ),
]


def chat(
    settings: Settings,
    model: OptionalModel = None,
    which: Which = None,
    resume: Resume = False,
    fork: Fork = False,
    listed: Listed = False,
    no_save: NoSave = False,
    plain: PlainText = False,
    tools: Tools = None,
) -> ExitCode:
    """A conversation; each turn reads only the tokens that are new.

    At a terminal: Enter sends, Alt-Enter begins a row, a pasted text is one message, /help lists the
    commands. Ctrl-C stops an answer and keeps what was said; Ctrl-D ends. Conversations are saved as
    they go on.

    From a pipe each line is a message and the answers go to stdout; three double quotes begin and
    end a message of several lines. A conversation of a pipe is saved only with --continue.
    """
    terminal = current()
    if listed:
        return show_list(terminal)
    wishes = Wishes(plain, not no_save, tools=tools)
    if resume or fork:
        if which is None and model is not None and ID.fullmatch(model):
            model, which = None, model
        wishes.resume, wishes.fork = which or "", fork
    elif which is not None:
        raise UsageError(
            f"what is {which!r}?", "an id of a conversation needs --continue or --fork"
        )
    if model is None and wishes.resume is None:
        raise UsageError("MODEL is missing", "gguf-runtime chat smollm2, or chat --continue")
    return begin(model, settings, wishes)


def converse(model: str, settings: Settings) -> ExitCode:
    """A new conversation with nothing special asked for."""
    return begin(model, settings, Wishes())


def begin(model: str | None, settings: Settings, wishes: Wishes) -> ExitCode:
    """Open the conversation, then one line after the other until the input ends."""
    terminal, store = current(), Store()
    old = store.load(wishes.resume or None) if wishes.resume is not None else None
    if old is not None:
        model = model or old.model
        old = store.fork(old) if wishes.fork else old
    assert model is not None
    if settings.show_settings:
        from gguf_runtime.cli.effective import show

        return show(terminal, model, settings)
    if settings.template is None:
        refuse_without_template(model)
    talk = Talk(terminal, model, settings, wishes, old.options if old is not None else {})
    talk.lines = open_lines(terminal, _history(wishes), _words, talk.status)
    talk.saving = wishes.save and (talk.lines.interactive or old is not None)
    ready = _in_background()
    talk.open()
    try:
        with _hang_up():
            talk.begin(old.messages if old is not None else None)
            if old is not None:
                talk.saved = old
                _greet(talk, old.id)
            elif talk.lines.interactive:
                terminal.say(f"{model}: /help for help, Ctrl-D ends")
            ready.join()
            _loop(talk)
    finally:
        talk.model.__exit__(None, None, None)
    return ExitCode.DONE


def _loop(talk: Talk) -> None:
    from gguf_runtime.cli.talk import commands, turns

    while not talk.over:
        default, talk.default = talk.default, ""
        text = talk.lines.ask(default)
        if text is None:
            return
        try:
            if text.strip() and not commands.run(talk, text):
                turns.say(talk, text)
        except KeyboardInterrupt as e:
            if not talk.lines.interactive or type(e) is not KeyboardInterrupt:
                raise
            talk.terminal.say("stopped")


def _greet(talk: Talk, name: str) -> None:
    from gguf_runtime.cli.talk import turns

    if not talk.lines.interactive:
        return
    messages = talk.chat.messages
    talk.terminal.say(f"{talk.name}, conversation {name}: /help for help, Ctrl-D ends")
    if messages and messages[-1]["role"] == "user":  # it had no answer yet
        talk.default = "\n".join(t for t in (messages.pop()["content"], talk.default) if t)
    if messages:
        role, text = messages[-1]["role"], clean(str(messages[-1]["content"]))
        shown = text if len(text) <= 200 else f"…{text[-199:]}"
        talk.terminal.dim(f"{role}: {shown}")
    turns.reread(talk)


def show_list(terminal: Terminal) -> ExitCode:
    """Saved conversations on stdout, newest first."""
    found = Store().listed()
    for c in found:
        title = clean(c.title)
        title = title if len(title) <= 60 else title[:59] + "…"
        terminal.line(f"{c.id}  {c.updated[:16]:16}  {c.turns:>3} turns  {c.model}  {title}")
    if not found:
        terminal.say(f"no conversation is saved in {Store().folder}")
    return ExitCode.DONE


def _history(wishes: Wishes) -> Path | None:
    if not wishes.save:
        return None
    try:
        return private_dir(state_dir()) / "history"
    except GGUFRuntimeError:
        return None


def _words() -> Any:
    from gguf_runtime.cli.talk.words import Words

    return Words()


def _in_background() -> threading.Thread:
    """Import what the line is made of while the model is loaded."""

    def prepare() -> None:
        with contextlib.suppress(ImportError):
            import prompt_toolkit.shortcuts.prompt  # noqa: F401

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def _hang_up() -> Any:
    """A terminal that goes away ends the conversation as SIGTERM does: what was said is saved."""
    number = getattr(signal, "SIGHUP", None)
    if number is None:
        yield
        return
    old = signal.signal(number, signal.getsignal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(number, old)
