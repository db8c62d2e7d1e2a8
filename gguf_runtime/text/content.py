"""Telling content from scaffolding in a rendered prompt.

Rendering joins both into one text. So before it, a mark (a character that nothing in sight holds)
is put in front of one character of whatever in the content reads like a control token; after it,
the marks are taken out and each marked character is content, which no control token may touch.
Content without such text is not changed at all, so templates that trim, compare or measure it see
what they expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gguf_runtime.errors import RequestError
from gguf_runtime.text.tokenizer import Segment
from gguf_runtime.text.tokenizer.special import Finder


class Marker:
    """Marks texts that hold control tokens, and reads the marks back."""

    def __init__(self, control_texts: Iterable[str], inputs: Any) -> None:
        """`inputs`: all that will be rendered, to find a mark that does not occur in it."""
        texts = [text for text in control_texts if text]
        self._finder = Finder((text, 0) for text in texts)
        self._backwards = Finder((text[::-1], 0) for text in texts)
        self._longest = max(map(len, texts), default=0)
        self._mark = _unused(inputs)
        self._used = False

    def mark(self, value: Any) -> Any:
        """A copy of a value of JSON's kinds with marks in its texts."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {k: self.mark(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark(v) for v in value]
        return value

    def segments(self, text: str) -> list[Segment]:
        """A rendered text without its marks; each marked character is a segment of content."""
        if not self._used:
            return [(text, True)] if text else []
        escaped = f"\\u{ord(self._mark):04x}"  # how a template's ensure_ascii prints a mark
        first, *rest = text.replace(escaped, self._mark).split(self._mark)
        found: list[Segment] = [(first, True)]
        for part in rest:
            found += [(part[:1], False), (part[1:], True)]
        return [segment for segment in found if segment[0]]

    def _text(self, text: str) -> str:
        places = set(self._inside(text)) | self._edges(text)
        if not places:
            return text
        self._used = True
        out, done = [], 0
        for at in sorted(places):
            out += [text[done:at], self._mark]
            done = at
        return "".join([*out, text[done:]])

    def _inside(self, text: str) -> Iterable[int]:
        return (at for at in self._finder.starts(text) if self._finder.match(text, at, len(text)))

    def _edges(self, text: str) -> set[int]:
        """Places where a control token may go on past the text's end, or may have begun before.

        Templates trim, so the edges are those of the trimmed text too.
        """
        places = set()
        for end in {len(text), len(text.rstrip())}:
            for at in range(max(0, end - self._longest), end):
                if self._finder.may_go_on(text, at, end):
                    places.add(at)
        backwards = text[::-1]
        for start in {0, len(text) - len(text.lstrip())}:
            end = len(text) - start
            for at in range(max(0, end - self._longest), end):
                if self._backwards.may_go_on(backwards, at, end):
                    places.add(start)
        return places


def _unused(inputs: Any) -> str:
    """A noncharacter that occurs nowhere in the inputs, nor its JSON escape."""
    held = repr(inputs).lower()  # shows noncharacters as \ufdd0 and escapes as \\ufdd0
    for c in range(0xFDD0, 0xFDF0):
        if f"{c:04x}" not in held:
            return chr(c)
    raise RequestError("the messages hold every noncharacter of Unicode", where="messages")
