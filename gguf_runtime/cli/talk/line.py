"""Where messages come from: a line that can be edited, a plain line, or a pipe."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli.talk.keyboard import as_text
from gguf_runtime.cli.terminal import Terminal, clean
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit import PromptSession

FENCE = '"""'
MARK, MORE = "> ", ". "
WAKE_S = 0.2  # a Ctrl-C that comes just before a read is seen after it
LEAVING = "Ctrl-C again, Ctrl-D or /exit ends the conversation"


class Lines(Protocol):
    """A source of messages; `interactive`: a person is there."""

    interactive: bool

    def ask(self, default: str = "") -> str | None:
        """The next message, `default` standing in the line already; None at the end."""


def open_lines(
    terminal: Terminal, history: Path | None, words: Callable[[], Any], status: Callable[[], str]
) -> Lines:
    """What fits stdin, stdout and TERM.

    Args:
        terminal: where questions are asked when stdout is no terminal.
        history: file of the lines of earlier conversations; None: nothing is remembered.
        words: makes a prompt_toolkit completer.
        status: a line below the one that is typed.
    """
    if not prompts.stdin_is_terminal():
        return Piped()
    if not terminal.out_is_terminal or os.environ.get("TERM", "dumb") in ("dumb", ""):
        return Typed(terminal)
    return Edited(terminal, history, words, status)


def unfenced(text: str) -> str:
    """A message without the three quotes around it."""
    if not text.lstrip().startswith(FENCE):
        return text
    inner = text.lstrip()[len(FENCE) :]
    return inner.rstrip().removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Whether three quotes begin a message and none end it."""
    begun = text.lstrip()
    return begun.startswith(FENCE) and not begun[len(FENCE) :].rstrip().endswith(FENCE)


class Piped:
    """Lines of a pipe or a file; nobody is asked."""

    interactive = False

    def ask(self, default: str = "") -> str | None:
        """The next line, or block between three quotes."""
        line = self._line()
        if line is None or not is_open(line):
            return line if line is None else unfenced(line)
        lines = [line]
        while is_open("\n".join(lines)):
            more = self._line()
            if more is None:
                break
            lines.append(more)
        return unfenced("\n".join(lines))

    def _line(self) -> str | None:
        if sys.stdin is None:
            return None
        data = sys.stdin.buffer.readline()
        if not data:
            return None
        try:
            return data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as e:
            raise RequestError(f"byte {e.start:,} is not UTF-8", where="a line of stdin") from None


class Typed:
    """Lines of a terminal that can do nothing more, or whose stdout goes elsewhere."""

    interactive = True

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._interrupts = 0

    def ask(self, default: str = "") -> str | None:
        """The next line, or block between three quotes."""
        if default:
            self._terminal.say(f"typed ahead, not sent: {clean(default)}")
        while True:
            try:
                line = self._line(MARK)
                while is_open(line):
                    line += "\n" + self._line(MORE)
            except EOFError:
                self._terminal.say("")
                return None
            except KeyboardInterrupt as e:
                if type(e) is not KeyboardInterrupt:
                    raise
                self._interrupts += 1
                self._terminal.say("")
                if self._interrupts > 1:
                    return None
                self._terminal.say(LEAVING)
                continue
            self._interrupts = 0
            return unfenced(line)

    def _line(self, mark: str) -> str:
        if self._terminal.out_is_terminal:
            self._terminal.write(mark)
        else:
            self._terminal.ask(mark)
        fd, data = sys.stdin.fileno(), b""
        while not data.endswith(b"\n"):
            while not select.select([fd], [], [], WAKE_S)[0]:
                pass
            more = os.read(fd, 65536)
            if not more and not data:
                raise EOFError
            data += more or b"\n"
        return data.decode("utf-8", "replace").rstrip("\r\n")


class Edited:
    """A line with history, completion and several rows: Enter sends, Alt-Enter begins a row."""

    interactive = True

    def __init__(
        self,
        terminal: Terminal,
        history: Path | None,
        words: Callable[[], Any],
        status: Callable[[], str],
    ) -> None:
        self._terminal, self._history = terminal, history
        self._words, self._status = words, status
        self._session: PromptSession[str] | None = None
        self._interrupts = 0
        self._ahead = ""  # came behind the line that was sent

    def ask(self, default: str = "") -> str | None:
        """The next message; what was typed ahead stands in the line."""
        from prompt_toolkit.input.typeahead import get_typeahead

        if self._session is None:
            self._session = self._open()
        session = self._session
        default, self._ahead = "\n".join(t for t in (default, self._ahead) if t), ""
        while True:
            try:
                text = session.prompt(default=default)
            except EOFError:
                self._terminal.say("")
                return None
            except KeyboardInterrupt as e:
                if type(e) is not KeyboardInterrupt:
                    raise
                self._interrupts += 1
                if self._interrupts > 1:
                    return None
                self._terminal.say(LEAVING)
                default = ""
                continue
            self._interrupts = 0
            self._ahead = as_text("".join(k.data for k in get_typeahead(session.app.input)))
            self._echo(text)
            return unfenced(text)

    def _echo(self, text: str) -> None:
        """The message as it was sent, whole, however long: the line itself has been wiped."""
        rows = clean(text).split("\n")
        self._terminal.write("\n".join([MARK + rows[0], *(MORE + r for r in rows[1:])]) + "\n")

    def _open(self) -> PromptSession[str]:
        os.environ.setdefault(
            "PROMPT_TOOLKIT_NO_CPR", "1"
        )  # no answers of the terminal in the line
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output.color_depth import ColorDepth
        from prompt_toolkit.shortcuts import CompleteStyle
        from prompt_toolkit.styles import Style

        from gguf_runtime.cli.talk.history import open_history

        return PromptSession(
            MARK,
            multiline=True,
            prompt_continuation=MORE,
            history=open_history(self._history),
            completer=self._words(),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=self._keys(),
            bottom_toolbar=lambda: clean(self._status()),
            style=Style.from_dict({"bottom-toolbar": "noreverse nobold #888888"}),
            color_depth=None if self._terminal.colors else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            enable_suspend=True,
            enable_open_in_editor=True,
            reserve_space_for_menu=0,
        )

    def _keys(self) -> Any:
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_open(buffer.text):
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def begin_row(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add("<sigint>")
        def clear(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text:
                self._interrupts = 0
                buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt())

        return keys
