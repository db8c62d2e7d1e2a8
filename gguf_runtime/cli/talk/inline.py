"""Markdown within a line: code, strong and emphasized text, struck text, links.

A marker counts once the one that ends it has come; until then the text behind it is held back, for
so many characters. One that stands alone is a character like any other.
"""

from __future__ import annotations

import re

BOLD, ITALIC, UNDERLINE, STRUCK = "\x1b[1m", "\x1b[3m", "\x1b[4m", "\x1b[9m"
CODE, DIM = "\x1b[36m", "\x1b[2m"
HELD = 300  # characters behind a marker that has no end yet
DEEPEST = 6  # spans within spans

Span = tuple[str, str]

_STYLES = {"**": BOLD, "__": BOLD, "*": ITALIC, "_": ITALIC, "~~": STRUCK, "***": BOLD + ITALIC}
_SPECIAL = re.compile(r"`+|\*+|_+|~+|!?\[|\\|<")
_TICKS = re.compile("`+")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\(\s*(\S*?)(?:\s+\"[^\"]*\")?\s*\)")
_LINK_BEGUN = re.compile(r"!?\[[^\[\]\n]*(?:\](?:\([^()\n]*)?)?$")
_AUTO = re.compile(r"<((?:https?://|mailto:)[^\s<>]+)>")
_ESCAPABLE = "\\`*_{}[]<>()#+-.!|~"


def spans(text: str, style: str = "", *, whole: bool = True) -> tuple[list[Span], int]:
    """Styled pieces of a line, and how many of its characters they stand for.

    With `whole` that is all of them; else more text may come.
    """
    if style.count("\x1b") > DEEPEST:
        return [(text, style)], len(text)
    out: list[Span] = []
    at = plain = 0

    def literal(end: int) -> None:
        if end > plain:
            out.append((text[plain:end], style))

    while (match := _SPECIAL.search(text, at)) is not None:
        mark, begin = match[0], match.start()
        open_end = not whole and len(text) - begin < HELD
        if open_end and match.end() == len(text):  # the marker itself may go on
            literal(begin)
            return out, begin
        found = _span(text, begin, mark, style)
        if found is not None and open_end and _may_change(text, begin, found[1], mark):
            literal(begin)
            return out, begin
        if found is not None:
            literal(begin)
            out += found[0]
            at = plain = found[1]
        elif open_end and _may_end(text, begin, mark):
            literal(begin)
            return out, begin
        else:
            at = match.end()
    literal(len(text))
    return out, len(text)


def _span(text: str, begin: int, mark: str, style: str) -> tuple[list[Span], int] | None:
    """What begins at a marker, and where it ends; None where it is only a character."""
    after = begin + len(mark)
    if mark == "\\":
        if text[after : after + 1] and text[after] in _ESCAPABLE:
            return [(text[after], style)], after + 1
        return None
    if mark[0] == "`":
        end = _run(text, mark, after)
        if end < 0:
            return None
        code = text[after:end]
        inner = code[1:-1] if code[:1] == code[-1:] == " " and code.strip() else code
        return [(inner, style + CODE)], end + len(mark)
    if mark in ("[", "!["):
        return _link(text, begin, style)
    if mark == "<":
        auto = _AUTO.match(text, begin)
        return ([(auto[1], style + UNDERLINE)], auto.end()) if auto else None
    if mark not in _STYLES or not _opens(text, begin, mark):
        return None
    end = _closer(text, mark, after)
    if end < 0:
        return None
    inner_spans, _ = spans(text[after:end], style + _STYLES[mark])
    return inner_spans, end + len(mark)


def _link(text: str, begin: int, style: str) -> tuple[list[Span], int] | None:
    link = _LINK.match(text, begin)
    if link is None:
        return None
    name, target = link[1], link[2]
    shown: list[Span] = [(name or target, style + UNDERLINE)]
    if name and target and name != target:
        shown.append((f" ({target})", style + DIM))
    return shown, link.end()


def _opens(text: str, begin: int, mark: str) -> bool:
    """A marker opens before a word, and an underscore not within one."""
    follows = text[begin + len(mark) : begin + len(mark) + 1]
    if not follows or follows.isspace():
        return False
    before = text[begin - 1 : begin] if begin else ""
    return mark[0] != "_" or not (before.isalnum() or before == "_")


def _closer(text: str, mark: str, at: int) -> int:
    """Where a marker ends what it began; -1: nowhere yet."""
    while (end := _run(text, mark, at)) >= 0:
        follows = text[end + len(mark) : end + len(mark) + 1]
        if not text[end - 1].isspace() and (mark[0] != "_" or not follows.isalnum()):
            return end
        at = end + len(mark)
    return -1


def _run(text: str, mark: str, at: int) -> int:
    """The next run of exactly this marker from `at` on; code in between hides its characters."""
    sign = mark[0]
    while at < len(text):
        if text[at] == "\\" and sign != "`":
            at += 2
        elif text[at] == "`" and sign != "`":
            ticks = _TICKS.match(text, at)
            assert ticks is not None
            end = _run(text, ticks[0], ticks.end())
            at = end + len(ticks[0]) if end >= 0 else ticks.end()
        elif text[at] == sign:
            end = at
            while end < len(text) and text[end] == sign:
                end += 1
            if end - at == len(mark):
                return at
            at = end
        else:
            at += 1
    return -1


def _may_change(text: str, begin: int, end: int, mark: str) -> bool:
    """Whether text to come could end elsewhere what seems to end here."""
    if mark[0] not in "`*_~":
        return False
    at = begin if mark[0] != "`" else end
    while (tick := _TICKS.search(text, at, end)) is not None:
        close = _run(text, tick[0], tick.end())
        if close < 0:
            return True
        at = close + len(tick[0])
    return end == len(text)


def _may_end(text: str, begin: int, mark: str) -> bool:
    """Whether text to come could make a span of what begins here."""
    if mark == "\\":
        return False
    if mark[0] == "`":
        return True
    if mark in ("[", "!["):
        return _LINK_BEGUN.match(text, begin) is not None
    if mark == "<":
        return re.match(r"<[a-z:/]*[^\s<>]*$", text[begin:]) is not None
    return mark in _STYLES and _opens(text, begin, mark)
