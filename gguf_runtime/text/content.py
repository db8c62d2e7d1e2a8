"""Telling content from scaffolding in a rendered prompt.

Rendering joins both into one text. So before it, a mark (a character that nothing in sight holds)
is put in front of one character of whatever in the content reads like a control token; after it,
the marks are taken out and each marked character is content, which no control token may touch.
Content without such text is not changed at all, so templates that trim, compare or measure it see
what they expect.

Templates may also join what was apart: one that deletes "/think" makes "<|im_end|>" of
"<|im_/thinkend|>". So every character with which a control token could begin is marked where the
template does not mind (`eager`); upper and lower case are the same here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gguf_runtime.errors import RequestError
from gguf_runtime.text.tokenizer import Segment
from gguf_runtime.text.tokenizer.special import Finder


class Marker:
    """Marks texts that hold control tokens, and reads the marks back."""

    def __init__(
        self, control_texts: Iterable[str], inputs: Any, spared: Iterable[str] | None = None
    ) -> None:
        """How to mark.

        Args:
            control_texts: what content may not become.
            inputs: all that will be rendered, to find a mark that does not occur in it.
            spared: given, the marker is eager, but for these texts, which the template looks for.
        """
        texts = list({_lower(text) for text in control_texts if text})
        firsts = "".join(sorted({re.escape(text[0]) for text in texts}))
        self._firsts = re.compile(f"[{firsts}]") if spared is not None and firsts else None
        self._spared = tuple(spared or ())
        self._finder = Finder((text, 0) for text in texts)
        self._backwards = Finder((text[::-1], 0) for text in texts)
        self._longest = max(map(len, texts), default=0)
        self._mark = _unused(inputs)
        self._used = False

    @property
    def used(self) -> bool:
        """Whether a mark was set."""
        return self._used

    def controls(self, segments: Iterable[Segment]) -> int:
        """How many control tokens stand in scaffolding."""
        count = 0
        for text, is_scaffolding in segments:
            done = 0
            for at in self._finder.starts(_lower(text)) if is_scaffolding else ():
                if at >= done and (found := self._finder.match(_lower(text), at, len(text))):
                    count, done = count + 1, found[1]
        return count

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
        low = _lower(text)
        places = set(self._inside(low)) | self._edges(low)
        if self._firsts is not None:
            found = (m.start() for m in self._firsts.finditer(low))
            places |= {at for at in found if not text.startswith(self._spared, at)}
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


def literals(source: str, control_texts: Iterable[str]) -> list[str]:
    """Texts in quotes in a template's source that it may look for, and that hold no control token."""
    texts = [text for text in control_texts if text]
    firsts = {text[0] for text in texts}
    found = {a or b for a, b in _QUOTED.findall(source)}
    found = {text for text in found if len(text) > 2 and text[0] in firsts and "\\" not in text}
    return sorted(text for text in found if not any(control in text for control in texts))


_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_LOWER = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})


def _lower(text: str) -> str:
    """As long as the text, so that places are the same."""
    return text.translate(_LOWER)


def _unused(inputs: Any) -> str:
    """A noncharacter that occurs nowhere in the inputs, nor its JSON escape."""
    held = repr(inputs).lower()  # shows noncharacters as \ufdd0 and escapes as \\ufdd0
    for c in range(0xFDD0, 0xFDF0):
        if f"{c:04x}" not in held:
            return chr(c)
    raise RequestError("the messages hold every noncharacter of Unicode", where="messages")
