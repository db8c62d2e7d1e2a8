"""Text that flows onto the screen: wrapped at words, written once, never taken back.

A word is written when it is complete, so none is cut at the edge and no cursor ever moves back:
whatever the window does meanwhile, nothing is lost and nothing stands twice. Widths are those of
the cells that most terminals use; a wrong guess costs a crooked line, no text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

NARROWEST = 10  # columns; below that nothing is wrapped
TAB = 4

# A cluster that must not be cut: flags, then a character with what joins or modifies it.
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
_JOIN = "[\u0300-\u036f\u200d\ufe0e\ufe0f\u20d0-\u20ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
_WIDE = (
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    "\uff01-\uff60\uffe0-\uffe6\u231a-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\U00020000-\U0003fffd]"
)
_CLUSTER = f"(?:{_FLAG}|{_WIDE})(?:{_JOIN}|(?<=\u200d).)*"
_PIECE = re.compile(f"\n|[ \t]+|{_CLUSTER}|(?:(?!{_WIDE})[^ \t\n])+", re.DOTALL)

RESET = "\x1b[0m"


def columns() -> int:
    """Columns of the terminal at this moment."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class Flow:
    """Wraps text for `write`; `width` is asked at every word, so a window may change its size."""

    def __init__(self, write: Callable[[str], None], width: Callable[[], int] = columns) -> None:
        self._write, self._width = write, width
        self._out: list[str] = []
        self._held: list[tuple[str, str]] = []  # (text, style) of a word that may go on
        self._spaces = ""
        self._spaces_style = ""
        self._now = ""  # style of what was put last
        self.column = 0
        self.indent = ""  # begins a row that was wrapped
        self.wraps = True

    def feed(self, text: str, style: str = "") -> None:
        """Add text; its last word is held back until it is known to be complete."""
        for piece in _PIECE.findall(text):
            if piece == "\n":
                self._end_word()
                self._spaces = ""
                self._newline()
            elif piece[0] in " \t":
                self._end_word()
                self._spaces += piece.replace("\t", " " * TAB)
                self._spaces_style = style
            elif re.match(_WIDE, piece) or re.match(_FLAG, piece):
                if not self._joins(piece):
                    self._end_word()
                self._held.append((piece, style))
            else:
                if self._held and re.match(_WIDE, self._held[-1][0]) and not self._joins(piece):
                    self._end_word()
                self._held.append((piece, style))

    def end(self) -> None:
        """Write what is held back."""
        self._end_word()
        self.flush()

    def flush(self) -> None:
        """Show all words that are complete."""
        self._restyle("")
        text = "".join(self._out)
        self._out.clear()
        if text:
            self._write(text)

    def fresh(self) -> None:
        """Begin a row, unless one has just begun."""
        self._end_word()
        self._spaces = ""
        if self.column:
            self._newline()

    def _joins(self, piece: str) -> bool:
        """Whether a piece goes on the cluster that is held: after a joiner, or as a modifier."""
        if not self._held:
            return False
        return self._held[-1][0].endswith("\u200d") or re.match(_JOIN, piece) is not None

    def _end_word(self) -> None:
        if not self._held:
            return
        width = self._width()
        size = sum(cells(text) for text, _ in self._held)
        wraps = self.wraps and width >= NARROWEST
        if (
            wraps
            and self.column + len(self._spaces) + size > width
            and self.column > cells(self.indent)
        ):
            self._newline()
            self._put(self.indent, "")
        elif self._spaces:
            self._put(self._spaces, self._spaces_style)
        self._spaces = ""
        for text, style in self._held:
            self._put(text, style)
        self._held.clear()

    def _newline(self) -> None:
        self._restyle("")
        self._out.append("\n")
        self.column = 0

    def _restyle(self, style: str) -> None:
        if style != self._now:
            self._out.append((RESET if self._now else "") + style)
            self._now = style

    def _put(self, text: str, style: str) -> None:
        if not text:
            return
        self._restyle(style)
        self._out.append(text)
        self.column += cells(text)
        width = self._width()
        if self.column > width:  # the terminal has begun a row by itself
            self.column = (self.column - 1) % max(width, 1) + 1


def cells(text: str) -> int:
    """Columns that a text takes."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)
