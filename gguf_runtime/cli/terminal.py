"""What the program says, and where: the answer on stdout, everything else on stderr.

stdout is UTF-8 whatever the locale and carries no escape sequences of ours. Errors and notices go
to stderr always; progress and colour only when stderr is a terminal. A notice has a code and a
message and is kept for the JSON output and `--strict`.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from gguf_runtime.errors import ExitCode, escape

FIRST_LINE_S = 10.0  # work that takes longer than this says so when stderr is no terminal
NEXT_LINE_S = 30.0
REDRAW_S = 0.1
SURE_S = 0.5  # of work, from which the time of the rest is guessed
READING = "reading"  # what the engine calls the reading of a prompt

# Control characters that a model's text may not send to a terminal; newline and tab stay.
_CONTROL = {c: None for c in (*range(0x20), *range(0x7F, 0xA0)) if c not in (0x09, 0x0A)}


class OutputError(Exception):
    """stdout, or a file, took no more; `quiet` when stdout's reader has gone, which is no fault."""

    def __init__(self, cause: OSError, where: str | None = None) -> None:
        super().__init__(cause.strerror or str(cause))
        self.quiet = isinstance(cause, BrokenPipeError) and where is None
        place = "the output" if where is None else escape(where)
        self.line = f"{place} cannot be written: {str(self).lower()}"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened otherwise than asked or expected."""

    code: str
    message: str


def clean(text: str) -> str:
    """The text without control characters except newline and tab."""
    return text.translate(_CONTROL)


@dataclass(slots=True)
class Terminal:
    """The streams of one call of the program and what was asked about them."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    no_color: bool = False
    strict: bool = False
    no_config: bool = False
    notices: list[Notice] = field(default_factory=list)
    _thought: bool = False  # a line of reasoning is open on stderr
    _line: str = ""  # the progress line that stands on the terminal
    _task: str = ""
    _since: float = 0.0
    _from: int = 0  # what was done by then
    _said: float = 0.0

    @property
    def out_is_terminal(self) -> bool:
        """Whether a person reads stdout."""
        return _is_terminal(sys.stdout)

    @property
    def err_is_terminal(self) -> bool:
        """Whether a person reads stderr."""
        return _is_terminal(sys.stderr)

    def setup(self) -> None:
        """Fix encodings and route the library's log by `-v` and `--debug`.

        Without them Python's own way does: warnings and worse go to stderr as they are.
        """
        for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(encoding="utf-8", errors=errors)
        if not (self.verbose or self.debug):
            return
        import logging  # 3 ms

        log = logging.getLogger("gguf_runtime")
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.handlers[:] = [handler]
        log.propagate = False
        log.setLevel(logging.DEBUG if self.debug else logging.INFO)

    def write(self, text: str, *, styled: bool = False) -> None:
        """Part of the answer, shown at once; `styled`: made for the terminal, and clean already."""
        if self._line:
            self.clear()
        self.end_thought()
        if sys.stdout is None:  # closed by the caller
            raise OutputError(OSError(errno.EBADF, "stdout is closed"))
        try:
            sys.stdout.write(clean(text) if self.out_is_terminal and not styled else text)
            sys.stdout.flush()
        except OSError as e:
            raise OutputError(e) from e

    def line(self, text: str = "") -> None:
        """A line of the answer."""
        self.write(text + "\n")

    def dim(self, text: str) -> None:
        """A line like those of `say`, of less weight."""
        self.say(self._paint(text, "2"))

    def think(self, text: str, *, force: bool = False) -> None:
        """Part of the reasoning, dimmed; where stderr is no terminal only with `force`."""
        if not force and (self.quiet or not self.err_is_terminal):
            return
        if self._line:
            self.clear()
        self._thought = not text.endswith("\n")
        self._emit(self._paint(clean(text) if self.err_is_terminal else text, "2"))

    def end_thought(self) -> None:
        """End the line of reasoning, if one is open."""
        if self._thought:
            self._thought = False
            self._emit("\n")

    def say(self, text: str) -> None:
        """A line on stderr for people; `--quiet` drops it."""
        if not self.quiet:
            self._err(text)

    def ask(self, text: str) -> None:
        """The beginning of a line that the person at the terminal completes."""
        self.clear()
        self._emit(text)

    def notice(self, code: str, message: str) -> None:
        """Record a notice and show it; the same one only once."""
        notice = Notice(code, message)
        if notice not in self.notices:
            self.notices.append(notice)
            self.say(f"{self._paint('notice:', '33')} {message}")

    def error(self, lines: list[str]) -> None:
        """One to three lines; never silenced."""
        first, *rest = lines
        self._err("\n  ".join([f"{self._paint('error:', '1;31')} {first}", *rest]))

    def progress(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show how far a piece of work is; called as often as one likes."""
        if self.quiet:
            return
        now = time.monotonic()
        if what != self._task:
            self.clear()
            self._task, self._since, self._said, self._from = what, now, 0.0, done
        finished = total > 0 and done >= total
        if self.err_is_terminal and os.environ.get("TERM") != "dumb":
            if finished:
                self.clear()
            elif now - self._said >= REDRAW_S:
                self._said = now
                self._draw(self._status(what, done, total, now - self._since))
        elif not finished and self._line_is_due(done, total, now):
            self._said = now
            self._err(self._status(what, done, total, now - self._since))

    def _status(self, what: str, done: int, total: int, spent: float) -> str:
        if not total:
            return f"{what} …"
        if total >= 1 << 20:  # bytes
            amount = f"{done / 1e6:,.0f}/{total / 1e6:,.0f} MB"
        else:
            amount = f"{done:,}/{total:,}" + (" tokens" if what == READING else "")
        new = done - self._from
        left = spent * (total - done) / new if new > 0 and spent > SURE_S else 0
        return f"{what} {amount}" + (f", {left:,.0f} s left" if left >= 1 else "")

    def status(self, text: str) -> None:
        """A progress line in the caller's words, in place of the last; nothing where no one looks."""
        now = time.monotonic()
        if self.quiet or not self.err_is_terminal or os.environ.get("TERM") == "dumb":
            return
        if now - self._said >= REDRAW_S or not self._line:
            self._said = now
            self._draw(text)

    def clear(self) -> None:
        """Take the progress line off the terminal."""
        if self._line:
            self._emit("\r\x1b[K")
        self._line = self._task = ""

    def _line_is_due(self, done: int, total: int, now: float) -> bool:
        if self._said:
            return now - self._said >= NEXT_LINE_S
        spent = now - self._since
        expected = spent * total / done if done and spent > SURE_S else spent
        return max(expected, spent) >= FIRST_LINE_S

    def _draw(self, text: str) -> None:
        columns = _columns()
        self._line = text[: columns - 1]
        self._emit(f"\r{self._line}\x1b[K")

    def _err(self, text: str) -> None:
        if self._line:
            self.clear()
        self.end_thought()
        self._emit(text + "\n")

    def _emit(self, text: str) -> None:
        """Write to stderr, if anybody is there to read it."""
        if sys.stderr is None:  # closed by the caller
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    @property
    def colors(self) -> bool:
        """Whether colours are wanted at a terminal, and understood there."""
        return not (self.no_color or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb")

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colors and self.err_is_terminal else text

    def closing_code(self, code: ExitCode) -> ExitCode:
        """The exit code once `--strict` has had its say."""
        if code is ExitCode.DONE and self.strict and self.notices:
            return ExitCode.NOT_CLEAN
        return code


_current = Terminal()


def current() -> Terminal:
    """The terminal of this call of the program."""
    return _current


def start() -> Terminal:
    """A fresh terminal, which `current` gives from now on."""
    global _current
    _current = Terminal()
    return _current


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
