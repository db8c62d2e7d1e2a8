"""An answer's Markdown on the screen as it comes.

Every line is shown once, in its final form, as soon as its kind is known; only a table waits for its
last row, since that decides how wide its columns are. A fence that never closes is code to the end.
Without colours the text stays as the model wrote it, wrapped at words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gguf_runtime.cli.talk.flow import Flow, columns
from gguf_runtime.cli.talk.inline import BOLD, CODE, DIM, UNDERLINE, spans

TABLE_COLUMNS = 20  # of the window; in a narrower one a table stays as it is written
WAITING = "…"  # stands where a table will be

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+|$)")
_ITEM = re.compile(r"^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+")
_QUOTE = re.compile(r"^ {0,3}> ?")
_RULE = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_DELIMITER = re.compile(r"^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:?)? *$")
# A beginning that may still become one of these.
_OPEN = re.compile(
    r"^[ \t]*(?:|[-*_][-*_ \t]*|\+|#{1,6}|\d{1,9}[.)]?|>|`{1,2}|~{1,2}|(?:`{3}|~{3}).*)$"
)


class Plain:
    """The text as it is, in one style; the terminal wraps it."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._ends_line = True

    def feed(self, text: str) -> None:
        """Show more of the answer."""
        self._write(text)
        self._ends_line = text.endswith("\n") if text else self._ends_line

    def end(self) -> None:
        """End the last line."""
        if not self._ends_line:
            self._write("\n")
            self._ends_line = True


class Markdown:
    """The text with what its marks mean; `styled` False: with the marks themselves, in one style."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        styled: bool = True,
        style: str = "",
        width: Callable[[], int] = columns,
    ) -> None:
        self._write, self._styled, self._width = write, styled, width
        self._flow = Flow(write, width)
        self._line = ""  # of the line that is being written, what was not shown yet
        self._decided = False  # its kind is known
        self._style = self._base = style
        self._fence = ""
        self._table: list[str] = []
        self._waiting = False

    def feed(self, text: str) -> None:
        """Show more of the answer, as far as it can be told what it means."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._line += line
            self._end_line()
        self._line += rest
        self._more()
        self._flow.flush()

    def end(self) -> None:
        """Show what is held back, and end the last line."""
        if self._line or self._table:
            last, self._line = self._line, ""
            if last or self._decided:
                self._line = last
                self._end_line(last=True)
            self._end_table()
        self._flow.fresh()
        self._flow.end()

    # ---- a line that is not complete -----------------------------------------------------------

    def _more(self) -> None:
        if not self._decided:
            if self._fence and _may_close(self._line, self._fence):
                return
            if not self._fence and (_OPEN.match(self._line) or self._in_table()):
                return
            if not self._line:
                return
            self._begin(self._line)
        self._show(whole=False)

    def _in_table(self) -> bool:
        begins = self._styled and self._line.lstrip().startswith("|")
        if begins and not self._waiting and self._width() >= TABLE_COLUMNS:
            self._end_fresh()
            self._waiting = True
            self._write(WAITING)
        return begins

    def _end_fresh(self) -> None:
        self._flow.fresh()
        self._flow.flush()

    # ---- a complete one ------------------------------------------------------------------------

    def _end_line(self, *, last: bool = False) -> None:
        line = self._line
        if not self._decided:
            if self._fence:
                if _closes(line, self._fence):
                    self._fence = ""
                    self._whole(line, DIM, last)
                    return
            elif self._styled and line.lstrip().startswith("|"):
                self._table.append(line)
                self._line = ""
                return
            else:
                self._end_table()
                if (fence := _FENCE.match(line)) is not None:
                    self._fence = fence[2]
                    self._whole(line, DIM, last)
                    return
                if self._styled and _RULE.match(line):
                    rule = "─" * min(max(self._width() - 1, 3), 40)
                    self._whole(rule, DIM, last)
                    return
            self._begin(line)
        self._show(whole=True)
        self._next(last)

    def _whole(self, text: str, style: str, last: bool) -> None:
        """A line of one style that is not wrapped."""
        self._flow.wraps = False
        self._flow.feed(text, style if self._styled else self._base)
        self._next(last)

    def _next(self, last: bool) -> None:
        if not last:
            self._flow.feed("\n")
        self._flow.indent, self._flow.wraps = "", True
        self._line, self._decided, self._style = "", False, self._base

    # ---- what it begins with -------------------------------------------------------------------

    def _begin(self, line: str) -> None:
        """The kind of a line that is no fence, rule or table: its prefix is shown."""
        self._decided = True
        if self._fence:
            self._style = CODE
            self._flow.wraps = False
            return
        self._end_table()
        if (heading := _HEADING.match(line)) is not None:
            self._style = BOLD + UNDERLINE if len(heading[1]) == 1 else BOLD
            self._prefix(heading[0], "")
        elif (item := _ITEM.match(line)) is not None:
            sign = "•" if item[2] in "-*+" else item[2]
            self._prefix(item[0], f"{item[1]}{sign} ")
        elif (quote := _QUOTE.match(line)) is not None:
            self._style = DIM
            self._prefix(quote[0], "│ ")
            self._flow.indent = "│ " if self._styled else ""

    def _prefix(self, written: str, shown: str) -> None:
        if not self._styled:
            return
        self._line = self._line[len(written) :]
        if shown:
            indent = shown[: len(shown) - len(shown.lstrip(" \t"))].replace("\t", "    ")
            mark = shown.lstrip(" \t")
            self._flow.feed(indent + mark, self._style)
            self._flow.indent = " " * (len(indent) + len(mark))

    def _show(self, *, whole: bool) -> None:
        """Show as much of the line as can be told what it means."""
        if not self._styled or self._fence:
            self._flow.feed(self._line, self._style if self._styled else self._base)
            self._line = ""
            return
        found, n = spans(self._line, self._style, whole=whole)
        for text, style in found:
            self._flow.feed(text, style)
        self._line = self._line[n:]

    # ---- tables --------------------------------------------------------------------------------

    def _end_table(self) -> None:
        rows, self._table = self._table, []
        if self._waiting:
            self._write("\r \r")
            self._waiting = False
        if not rows:
            return
        self._end_fresh()
        width = self._width()
        if len(rows) > 1 and _DELIMITER.match(rows[1]) and width >= TABLE_COLUMNS:
            from gguf_runtime.cli.talk.table import drawn

            self._write(drawn(rows, width))
            return
        for row in rows:
            for text, style in spans(row)[0]:
                self._flow.feed(text, style)
            self._flow.feed("\n")


def _closes(line: str, fence: str) -> bool:
    text = line.strip()
    return len(text) >= len(fence) and set(text) == {fence[0]} and len(line) - len(text) < 4


def _may_close(line: str, fence: str) -> bool:
    return re.fullmatch(rf" {{0,3}}{re.escape(fence[0])}*[ \t]*", line) is not None
