"""The keyboard while the program works: nothing typed is echoed, lost or sent by itself.

What comes in the meantime is kept for the next line, where the person sees it and may send it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from types import FrameType
from typing import Any, Protocol

# Keys that are no text: CSI and SS3 sequences (arrows, answers of the terminal), then any other.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x80-\x9f]")


class Quiet:
    """Within the block keys are not echoed; afterwards `typed` is the text that they made.

    Ctrl-C still is a signal. Without a terminal, or where there are none of the kind, it does nothing.
    """

    def __init__(self) -> None:
        self.typed = ""
        self._fd = -1
        self._old: list[Any] = []

    def __enter__(self) -> Quiet:
        try:
            import termios

            if sys.stdin is None or not sys.stdin.isatty():
                return self
            self._fd = sys.stdin.fileno()
            self._old = termios.tcgetattr(self._fd)
            new = termios.tcgetattr(self._fd)
            new[3] &= ~(termios.ECHO | termios.ICANON)
            new[6][termios.VMIN], new[6][termios.VTIME] = 0, 0
            termios.tcsetattr(self._fd, termios.TCSANOW, new)
        except (ImportError, OSError, ValueError):
            self._old = []
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._old:
            return
        import termios

        try:
            self.typed = as_text(_waiting(self._fd).decode("utf-8", "ignore"))
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._old)


class Loud:
    """Within a `Quiet` block, for a question: keys are echoed again, and Ctrl-C raises."""

    def __init__(self) -> None:
        self._fd = -1
        self._old: list[Any] = []
        self._handler: Any = None

    def __enter__(self) -> Loud:
        self._handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            import termios

            self._fd = sys.stdin.fileno()
            self._old = termios.tcgetattr(self._fd)
            new = termios.tcgetattr(self._fd)
            new[3] |= termios.ECHO | termios.ICANON
            termios.tcsetattr(self._fd, termios.TCSANOW, new)
        except (ImportError, OSError, ValueError):
            self._old = []
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._handler or signal.default_int_handler)
        if self._old:
            import termios

            termios.tcsetattr(self._fd, termios.TCSANOW, self._old)


def as_text(keys: str) -> str:
    """The text that keys made: line ends as newlines, erased characters gone, other keys left out."""
    text = _SEQUENCE.sub("", keys).replace("\r\n", "\n").replace("\r", "\n")
    kept: list[str] = []
    for c in text:
        if c not in "\x08\x7f":
            kept.append(c)
        elif kept:
            kept.pop()
    return _CONTROL.sub("", "".join(kept)).strip("\n")


def _waiting(fd: int) -> bytes:
    """What has been typed and not read; the terminal does not wait for whole lines."""
    found = b""
    while select.select([fd], [], [], 0)[0]:
        data = os.read(fd, 65536)
        if not data:
            break
        found += data
    return found


class Closable(Protocol):
    """What Ctrl-C ends: a stream."""

    def close(self) -> None:
        """End soon, from wherever this is called."""


class Stoppable:
    """Within the block Ctrl-C closes `stream` instead of raising; pressed again it raises.

    Nothing is cut off between two lines, so what is on the screen is what is kept.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._stream: Closable | None = None
        self._old: Any = None

    def watch(self, stream: Closable) -> None:
        """From now on this is what is closed; at once, where Ctrl-C came before."""
        self._stream = stream
        if self.stopped:
            stream.close()

    def __enter__(self) -> Stoppable:
        self._old = signal.signal(signal.SIGINT, self._strike)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._old or signal.default_int_handler)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
        if self._stream is not None:
            self._stream.close()
