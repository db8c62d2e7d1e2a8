"""The program at a terminal without a window: what was typed, and what stands on the screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pyte
from wcwidth import wcwidth

HANG_S = 120  # until which a text has to show up, on a machine that does other things
STUB = str(Path(__file__).with_name("stub_engine.py"))
SHOWN = 40  # rows of an error
PASTE = ("\x1b[200~", "\x1b[201~")


class Emulator(pyte.HistoryScreen):
    """What pyte lacks: joiners stay with their characters, and a new width wraps the old rows."""

    def draw(self, data: str) -> None:
        """Show characters; those without a width go into the cell before."""
        for part in re.split("([\u200b-\u200d\ufe00-\ufe0f])", data):
            if len(part) == 1 and wcwidth(part) == 0:
                row, x = self.buffer[self.cursor.y], self.cursor.x - 1
                while x > 0 and not row[x].data:
                    x -= 1
                row[x] = row[x]._replace(data=row[x].data + part)
            else:
                super().draw(part)

    def reflow(self, lines: int, columns: int) -> None:
        """Another size: rows that are too long go on in the next, as most terminals have it."""
        y = len(self.history.top) + self.cursor.y
        rows = [*self.history.top, *(self.buffer[k] for k in range(self.cursor.y + 1))]
        new: list[list[Any]] = []
        for k, row in enumerate(rows):
            cells = [
                row[x] for x in range(max((c for c in row if row[c].data != " "), default=-1) + 1)
            ]
            if k == y:
                cells += [self.default_char] * (self.cursor.x - len(cells))
            new += [cells[x : x + columns] for x in range(0, max(len(cells), 1), columns)]
        x = len(new[-1])
        self.history.top.clear()
        self.buffer.clear()
        super().resize(lines, columns)
        for cells in new[:-lines]:
            self.history.top.append(_row(cells, self.default_char))
        for k, cells in enumerate(new[-lines:]):
            self.buffer[k] = _row(cells, self.default_char)
        self.cursor.y, self.cursor.x = min(len(new), lines) - 1, x
        self.dirty.update(range(lines))


def _row(cells: list[Any], blank: Any) -> Any:
    row = pyte.screens.StaticDefaultDict(blank)
    row.update(enumerate(cells))
    return row


class Screen:
    """A process at a pseudo-terminal, its bytes (`raw`) and its rows, those that scrolled off too."""

    def __init__(
        self, *args: str, columns: int = 80, rows: int = 24, program: tuple[str, ...], **env: str
    ) -> None:
        self.raw = b""
        self.code: int | None = None
        self.screen = Emulator(columns, rows, history=100_000, ratio=0.001)
        self._stream = pyte.ByteStream(self.screen)
        environment = os.environ | {"TERM": "xterm-256color"} | env
        for name in ("NO_COLOR", "COLUMNS", "LINES", "VISUAL", "EDITOR"):
            if name not in env:
                environment.pop(name, None)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execve(sys.executable, [sys.executable, *program, *args], environment)
            os._exit(127)
        self._size(columns, rows)

    # ---- what a person does --------------------------------------------------------------------

    def type(self, text: str) -> None:
        """Keys."""
        data = text.encode()
        while data:
            data = data[os.write(self.fd, data[:512]) :]
            self.pump(0)

    def enter(self, text: str) -> None:
        """A line."""
        self.type(text + "\r")

    def paste(self, text: str) -> None:
        """A pasted text."""
        self.type(PASTE[0] + text.replace("\n", "\r") + PASTE[1])

    def resize(self, columns: int, rows: int) -> None:
        """Another size of the window."""
        self.screen.reflow(rows, columns)
        self._size(columns, rows)

    def interrupt(self) -> None:
        """Ctrl-C, as a key."""
        self.type("\x03")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """A signal; the process may have ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    # ---- what a person sees --------------------------------------------------------------------

    def lines(self) -> list[str]:
        """All rows, without blanks at their ends."""
        old = [_text(row, self.screen.columns) for row in self.screen.history.top]
        return [*old, *(row.rstrip() for row in self.screen.display)]

    def text(self) -> str:
        """All rows as one text."""
        return "\n".join(self.lines()).rstrip("\n")

    def until(self, words: str, since: int = 0) -> None:
        """Wait for words (a regular expression) in the rows from `since` on, cut or not at an edge."""
        self._wait(lambda: self._has(words, since), words)

    def _has(self, words: str, since: int) -> bool:
        rows = self.lines()[since:]
        return any(re.search(words, glue.join(rows), re.MULTILINE) for glue in ("\n", ""))

    def seen(self, condition: Any) -> None:
        """Wait until something holds of what a person sees."""
        self._wait(condition, "what was waited for")

    def prompt(self, since: int = 0) -> int:
        """Wait for the empty line in which a message is typed; the number of its row."""
        self._wait(lambda: self._at_prompt(since), "the prompt")
        return self.row()

    def row(self) -> int:
        """The row of the cursor, counted from the first of all."""
        return len(self.screen.history.top) + self.screen.cursor.y

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + HANG_S
        while self.code is None and time.monotonic() < deadline:
            self.pump(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                while self.pump(0):
                    pass
        assert self.code is not None, "it goes on:\n" + "\n".join(self.lines()[-SHOWN:])
        return self.code

    # ---- how -----------------------------------------------------------------------------------

    def pump(self, seconds: float) -> bool:
        """Take in what the process wrote; whether it wrote something."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side has gone
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def _wait(self, condition: Any, words: str) -> Any:
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            self.pump(0.2)
        raise AssertionError(f"{words} never came:\n" + "\n".join(self.lines()[-SHOWN:]))

    def _at_prompt(self, since: int) -> bool:
        row = self.screen.display[self.screen.cursor.y].rstrip()
        return self.row() >= since and row == ">" and self.screen.cursor.x == 2

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.code is None:
            self.kill()
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def _text(row: Any, columns: int) -> str:
    return "".join(row[x].data for x in range(columns)).rstrip()
