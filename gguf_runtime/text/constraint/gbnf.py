"""GBNF, the grammar notation of llama.cpp, read into flat rules.

    root  ::= item ("," item)*          sequences, alternatives, groups, comments with #
    item  ::= [a-z]{1,8} | "x"? | .     classes, literals, any code point; * + ? {m} {m,} {m,n}

Every group becomes a rule of its own, so that nothing that walks over a grammar recurses over its
depth. A rule goes on over a new line only within a group or behind `|`.
Checked: tests/golden/text/test_grammars.py, 76 grammars and what llama.cpp makes of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gguf_runtime.errors import RequestError, show

MOST_CODE_POINT = 0x10FFFF
MOST_TEXT = 1 << 20  # characters of a grammar
MOST_COUNT = 1 << 20  # of a repetition
UNBOUNDED = -1

_NAME = re.compile(r"[A-Za-z0-9-]+")
_COUNT = re.compile(r"\{[ \t]*(\d+)[ \t]*(?:(,)[ \t]*(\d*)[ \t]*)?\}")
_TOKEN = re.compile(r"!?<[^<>\n]+>")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_DIGITS = re.compile("[0-9A-Fa-f]+")
_HEX = {"x": 2, "u": 4, "U": 8}

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of these ranges, ascending and disjoint."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Ref:
    """Another rule."""

    name: str


Atom = Chars | Ref


@dataclass(frozen=True, slots=True)
class Item:
    """An atom, so many times; `most` may be UNBOUNDED."""

    atom: Atom
    least: int = 1
    most: int = 1


Alternative = tuple[Item, ...]
Rules = dict[str, list[Alternative]]


def negated(ranges: Ranges) -> Ranges:
    """All code points but these."""
    out, at = [], 0
    for low, high in ranges:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    if at <= MOST_CODE_POINT:
        out.append((at, MOST_CODE_POINT))
    return tuple(out)


def merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Ascending and disjoint."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def parse(text: str) -> Rules:
    """The rules of a grammar, `root` among them.

    Raises:
        RequestError: it is no grammar, names a rule that is not there, or is left-recursive.
    """
    if len(text) > MOST_TEXT:
        raise RequestError(
            "the grammar is too long",
            expected=f"at most {MOST_TEXT:,} characters",
            got=f"{len(text):,}",
        )
    rules = _Parser(text).rules()
    if "root" not in rules:
        raise RequestError("the grammar has no rule named root", hint="root ::= …")
    from gguf_runtime.text.constraint.checks import refuse_left_recursion, refuse_unknown

    refuse_unknown(rules)
    refuse_left_recursion(rules)
    return rules


@dataclass(slots=True)
class _Group:
    """A rule or a group in the making; `name` is where its alternatives go."""

    name: str
    at: int
    alternatives: list[Alternative] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class _Parser:
    """Left to right with a stack of open groups."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: Rules = {}
        self.made = 0

    def rules(self) -> Rules:
        """All rules of the text."""
        self._blank(lines=True)
        while self.at < len(self.text):
            self._rule()
            self._blank(lines=True)
        return self.found

    def _rule(self) -> None:
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise self._error("expected the name of a rule (letters, digits and -)")
        if name[0] in self.found:
            raise self._error(f"the rule {show(name[0])} stands here twice")
        self.at = name.end()
        self._blank()
        if not self.text.startswith("::=", self.at):
            raise self._error(f"expected ::= behind the name {show(name[0])}")
        self.at += 3
        self.found[name[0]] = []  # keeps the place of the rule in front of its groups
        self._body(_Group(name[0], name.start()))

    def _body(self, rule: _Group) -> None:
        """Alternatives up to the end of the rule."""
        stack = [rule]
        self._blank(lines=True)
        while True:
            top = stack[-1]
            c = self.text[self.at : self.at + 1]
            if c == "(":
                self.made += 1
                stack.append(_Group(f"{rule.name}({self.made}", self.at))
                self.at += 1
                self._blank(lines=True)
                continue
            if c == "|":
                top.alternatives.append(tuple(top.items))
                top.items = []
                self.at += 1
                self._blank(lines=True)
                continue
            if c == ")":
                if len(stack) == 1:
                    raise self._error(") without (")
                stack.pop()
                self._close(top)
                self.at += 1
                self._count(stack[-1], [Item(Ref(top.name))])
            elif c in ("", "\n", "\r"):
                if len(stack) > 1:
                    self.at = top.at
                    raise self._error("this ( has no )")
                self._close(top)
                return
            else:
                self._count(top, self._atoms(c))
            self._blank(lines=len(stack) > 1)

    def _close(self, group: _Group) -> None:
        self.found[group.name] = [*group.alternatives, tuple(group.items)]

    def _atoms(self, c: str) -> list[Item]:
        """A literal (one atom a character), class, dot or name."""
        if c == '"':
            return self._literal()
        if c == "[":
            return [Item(self._class())]
        if c == ".":
            self.at += 1
            return [Item(Chars(((0, MOST_CODE_POINT),)))]
        if _TOKEN.match(self.text, self.at):
            raise self._error(
                "single tokens cannot be named in a grammar: write their text in quotes"
            )
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise self._error(f"nothing begins with {show(c)} here")
        self.at = name.end()
        return [Item(Ref(name[0]))]

    def _count(self, group: _Group, items: list[Item]) -> None:
        """Append items; a repetition behind them holds for them together, and repetitions stack."""
        while True:
            least, most = self._repetition()
            if (least, most) == (1, 1):
                group.items += items
                return
            if len(items) == 1 and (items[0].least, items[0].most) == (1, 1):
                items = [Item(items[0].atom, least, most)]
                continue
            self.made += 1
            name = f"{group.name.partition('(')[0]}({self.made}"
            self.found[name] = [tuple(items)]
            items = [Item(Ref(name), least, most)]

    def _repetition(self) -> tuple[int, int]:
        self._blank()
        c = self.text[self.at : self.at + 1]
        if c and c in "*+?":
            self.at += 1
            return {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}[c]
        if c != "{":
            return 1, 1
        count = _COUNT.match(self.text, self.at)
        if count is None:
            raise self._error("expected {m}, {m,} or {m,n}")
        least = int(count[1])
        most = least if not count[2] else int(count[3]) if count[3] else UNBOUNDED
        if most != UNBOUNDED and most < least:
            raise self._error(f"a repetition of at least {least} and at most {most}")
        if max(least, most) > MOST_COUNT:
            raise self._error(f"a repetition of more than {MOST_COUNT:,}")
        self.at = count.end()
        return least, most

    def _literal(self) -> list[Item]:
        begin = self.at
        self.at += 1
        items: list[Item] = []
        while True:
            c = self.text[self.at : self.at + 1]
            if c in ("", "\n", "\r"):
                self.at = begin
                raise self._error('this " has no end')
            if c == '"':
                self.at += 1
                return items or [Item(Ref(self._empty()))]
            code = self._character()
            items.append(Item(Chars(((code, code),))))

    def _empty(self) -> str:
        """A rule that is the empty text: `""` can be repeated like everything else."""
        self.found.setdefault("(", [()])
        return "("

    def _class(self) -> Chars:
        begin = self.at
        self.at += 1
        inverse = self.text.startswith("^", self.at)
        self.at += inverse
        ranges: list[tuple[int, int]] = []
        while not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                self.at = begin
                raise self._error("this [ has no ]")
            low = high = self._character()
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                if self.at >= len(self.text):
                    continue
                high = self._character()
                if high < low:
                    raise self._error("a range that goes backwards")
            ranges.append((low, high))
        self.at += 1
        found = merged(ranges)
        found = negated(found) if inverse else found
        if not found:
            self.at = begin
            raise self._error("a class without any character")
        return Chars(found)

    def _character(self) -> int:
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return ord(c)
        kind = self.text[self.at : self.at + 1]
        self.at += 1
        if kind in _ESCAPES:
            return ord(_ESCAPES[kind])
        n = _HEX.get(kind, 0)
        digits = self.text[self.at : self.at + n]
        if not n or len(digits) < n or not _HEX_DIGITS.fullmatch(digits):
            self.at -= 2
            raise self._error(
                'no such escape; known: \\n \\r \\t \\\\ \\" \\[ \\] \\xNN \\uNNNN \\UNNNNNNNN'
            )
        self.at += n
        code = int(digits, 16)
        if code > MOST_CODE_POINT or 0xD800 <= code <= 0xDFFF:
            raise self._error(f"U+{code:04X} is no character")
        return code

    def _blank(self, *, lines: bool = False) -> None:
        """Skip blanks and comments; with `lines` new lines too."""
        text, n = self.text, len(self.text)
        while self.at < n:
            c = text[self.at]
            if c == "#":
                end = text.find("\n", self.at)
                self.at = n if end < 0 else end
            elif c in " \t" or (lines and c in "\r\n"):
                self.at += 1
            else:
                return

    def _error(self, what: str) -> RequestError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1
        return RequestError(f"{what}", where=f"grammar, line {line}, column {column}")


def literal(text: str) -> Alternative:
    """The items of a text."""
    return tuple(Item(Chars(((ord(c), ord(c)),))) for c in text)
