"""Text that is still coming, for readers that are written as if it were all there.

A reader is a generator: it yields where it needs more text than there is, and goes on when more was
fed or the text has ended. What it cannot read raises `Unreadable`; the text is then shown as it stands.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

SPACE = " \t\r\n"


class Unreadable(Exception):
    """The text breaks the format, or ends within it."""


class Source:
    """The text so far; `at` is the place up to which it is read.

    Attributes:
        text: what is kept; `cut` drops what lies before `at`.
        ended: nothing more will come.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def cut(self) -> None:
        """Forget what is read."""
        self.text = self.text[self.at :]
        self.at = 0

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self.at >= len(self.text):
            if self.ended:
                return ""
            yield
        return self.text[self.at]

    def spaces(self) -> Reading[None]:
        """Pass over white space."""
        while (c := (yield from self.peek())) and c in SPACE:
            self.at += 1

    def comes(self, word: str) -> Reading[bool]:
        """Whether the text goes on with this word; passes over it if so."""
        while not self.text.startswith(word, self.at):
            if self.ended or not word.startswith(self.text[self.at :]):
                return False
            yield
        self.at += len(word)
        return True

    def expect(self, word: str) -> Reading[bool]:
        """Pass over a word that has to come; True."""
        if not (yield from self.comes(word)):
            raise Unreadable
        return True

    def until(self, *marks: str) -> Reading[tuple[str, str]]:
        """The text before the first of the marks, and that mark; passes over both."""
        longest = max(map(len, marks))
        start = self.at
        while True:
            hits = [(i, m) for m in marks if (i := self.text.find(m, start)) >= 0]
            if hits:
                i, mark = min(hits)
                found = self.text[self.at : i]
                self.at = i + len(mark)
                return found, mark
            if self.ended:
                raise Unreadable
            start = max(self.at, len(self.text) - longest + 1)
            yield


def tail(text: str, words: tuple[str, ...]) -> int:
    """Where the longest tail of the text begins that may become one of the words."""
    best = len(text)
    for word in words:
        at = text.find(word[0], max(0, len(text) - len(word) + 1), best)
        while at >= 0:
            if word.startswith(text[at:]):
                best = at
                break
            at = text.find(word[0], at + 1, best)
    return best
