"""`chat`: a conversation at the terminal; each turn reads only what is new."""

from __future__ import annotations

import sys
from typing import Any

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli.load import load, pass_on, refuse_without_template
from gguf_runtime.cli.settings import Settings
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.errors import ExitCode, RequestError

FENCE = '"""'
HELP = f"""/exit ends, /reset forgets the conversation, /help shows this
{FENCE} begins and ends a message of several lines; Ctrl-C stops an answer, Ctrl-D ends"""


def chat(
    model: o.ModelArg,
    settings: Settings,
) -> ExitCode:
    """A conversation; each turn reads only the tokens that are new.

    One line is one message; from a pipe too, so a file of questions is answered line by line.
    Three double quotes begin and end a message of several lines. Ctrl-C stops an answer and keeps
    what was said; Ctrl-D ends.
    """
    return converse(model, settings)


def converse(model: str, settings: Settings) -> ExitCode:
    """The loop: a line, an answer, until the input ends."""
    if settings.show_settings:
        from gguf_runtime.cli.effective import show

        return show(current(), model, settings)
    request, system = settings.request(), settings.system
    terminal = current()
    lines = _Lines(terminal)
    refuse_without_template(model)
    with load(terminal, model, **settings.machine()) as m:
        talk: Any = m.chat(system=system)
        if lines.interactive:
            terminal.say(f"{model}: /help for help, Ctrl-D ends")
        while (text := lines.message()) is not None:
            word = text.strip()
            if word in ("/exit", "/quit", "/bye"):
                break
            if word in ("/help", "/?"):
                terminal.say(HELP)
            elif word == "/reset":
                talk = m.chat(system=system)
                terminal.say("the conversation is forgotten")
            elif word:
                _answer(terminal, talk, text, request, interactive=lines.interactive)
    return ExitCode.DONE


def _answer(
    terminal: Terminal, talk: Any, text: str, request: dict[str, Any], *, interactive: bool
) -> None:
    """One turn; when a person is there, Ctrl-C or a refusal ends the turn alone."""
    ends_line = True
    try:
        with talk.stream(text, **request) as stream:
            for piece in stream:
                terminal.write(piece)
                ends_line = piece.endswith("\n")
    except KeyboardInterrupt as e:
        if not interactive or type(e) is not KeyboardInterrupt:
            raise
        terminal.write("" if ends_line else "\n")
        terminal.say("stopped; what was said stays in the conversation")
        return
    except RequestError as e:
        if not interactive:
            raise
        terminal.error(e.lines())
        return
    if not ends_line:
        terminal.write("\n")
    pass_on(terminal, stream.result.notices)
    if stream.result.finish_reason == "context":
        terminal.notice(
            "context-full", "the context is full: the answer was cut; /reset begins anew"
        )


class _Lines:
    """Messages from a person or a pipe."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.interactive = prompts.stdin_is_terminal()
        self._interrupts = 0
        if self.interactive and terminal.out_is_terminal:  # readline writes to stdout
            _line_editing()

    def message(self) -> str | None:
        """The next message; None at the end of the input, or after Ctrl-C twice in a row."""
        text = self._line("> ")
        if text is None or not text.lstrip().startswith(FENCE):
            return text
        parts = [text.lstrip()[len(FENCE) :]]
        while not parts[-1].rstrip().endswith(FENCE):
            more = self._line(". ")
            if more is None:
                return "\n".join(parts)
            parts.append(more)
        parts[-1] = parts[-1].rstrip().removesuffix(FENCE)
        return "\n".join(parts).strip("\n")

    def _line(self, mark: str) -> str | None:
        if not self.interactive:
            return self._piped()
        while True:
            try:
                line = input(mark) if self.terminal.out_is_terminal else self._asked(mark)
            except EOFError:
                self.terminal.say("")
                return None
            except KeyboardInterrupt as e:
                if type(e) is not KeyboardInterrupt:
                    raise
                self._interrupts += 1
                self.terminal.say("")
                if self._interrupts > 1:
                    return None
                self.terminal.say("Ctrl-C again or Ctrl-D ends the conversation")
                continue
            self._interrupts = 0
            return line

    def _asked(self, mark: str) -> str:
        self.terminal.ask(mark)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _piped(self) -> str | None:
        if sys.stdin is None:
            return None
        data = sys.stdin.buffer.readline()
        if not data:
            return None
        try:
            return data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as e:
            raise RequestError(f"byte {e.start:,} is not UTF-8", where="a line of stdin") from None


def _line_editing() -> None:
    """History and editing keys, where this Python has them; pasted lines are one input."""
    try:
        import readline
    except ImportError:
        return
    readline.parse_and_bind("set enable-bracketed-paste on")
