"""GBNF rules in the notation that llguidance reads (a dialect of Lark).

llguidance cuts the text into lexemes, greedily, before its parser sees it; GBNF knows no lexemes.
So a grammar without recursion becomes one lexeme, which is exact, and in any other grammar every code
point is a lexeme of its own, which is exact too: no code point's bytes begin another's.
"""

from __future__ import annotations

from gguf_runtime.errors import RequestError
from gguf_runtime.text.constraint.gbnf import (
    UNBOUNDED,
    Chars,
    Item,
    Ref,
    Rules,
)

# Rules within rules: in one lexeme, and at all. The compiler recurses, and its stack is not ours.
MOST_IN_LEXEME, MOST_DEPTH = 200, 500


def to_lark(rules: Rules) -> str:
    """The same language as `root` of the rules."""
    rules = _without_aliases(rules)
    reached = _reached(rules)
    order, recursive = _innermost_first(rules, reached)
    if recursive or _depth(rules, order) > MOST_IN_LEXEME:
        return _parsed(rules, reached)
    return _one_lexeme(rules, order)


def _without_aliases(rules: Rules) -> Rules:
    """Rules taken out that are another rule and nothing else, or a plain repetition of one."""
    other: dict[str, Item] = {}
    for name, alternatives in rules.items():
        if name == "root" or len(alternatives) != 1 or len(alternatives[0]) != 1:
            continue
        item = alternatives[0][0]
        if isinstance(item.atom, Ref) and _plain(item):
            other[name] = item

    def end(item: Item) -> Item:
        while isinstance(item.atom, Ref) and item.atom.name in other:
            inner = other[item.atom.name]
            if not _plain(item) and (inner.least, inner.most) != (1, 1):
                break
            item = _times(item, inner)
        return item

    return {
        name: [tuple(end(i) for i in a) for a in alternatives]
        for name, alternatives in rules.items()
    }


def _plain(item: Item) -> bool:
    """Once, or `?`, `*` or `+`."""
    return item.least <= 1 and item.most in (1, UNBOUNDED)


def _times(outer: Item, inner: Item) -> Item:
    """`outer` repetitions of `inner`, as one item."""
    if (inner.least, inner.most) == (1, 1):
        return Item(inner.atom, outer.least, outer.most)
    most = UNBOUNDED if UNBOUNDED in (outer.most, inner.most) else 1
    return Item(inner.atom, min(outer.least, inner.least), most)


def _depth(rules: Rules, order: list[str]) -> int:
    """How deep rules stand within each other; `order` has the innermost first."""
    deep: dict[str, int] = {}
    for name in order:
        inner = (
            deep[i.atom.name]
            for a in rules[name]
            for i in a
            if isinstance(i.atom, Ref) and i.most != 0
        )
        deep[name] = 1 + max(inner, default=0)
    return deep["root"]


def _reached(rules: Rules) -> list[str]:
    """Rules that `root` leads to, `root` first."""
    seen, work = {"root": None}, ["root"]
    while work:
        for items in rules[work.pop()]:
            for i in items:
                if isinstance(i.atom, Ref) and i.most != 0 and i.atom.name not in seen:
                    seen[i.atom.name] = None
                    work.append(i.atom.name)
    return list(seen)


def _innermost_first(rules: Rules, reached: list[str]) -> tuple[list[str], bool]:
    """An order in which every rule stands behind those that it uses, and whether one uses itself."""
    uses = {
        r: [i.atom.name for items in rules[r] for i in items if isinstance(i.atom, Ref) and i.most]
        for r in reached
    }
    order: list[str] = []
    recursive = False
    state = {"root": 1}
    stack = [("root", iter(uses["root"]))]
    while stack:
        name, rest = stack[-1]
        for other in rest:
            recursive = recursive or state.get(other) == 1
            if other not in state:
                state[other] = 1
                stack.append((other, iter(uses[other])))
                break
        else:
            state[name] = 2
            order.append(name)
            stack.pop()
        if len(stack) > MOST_DEPTH:
            raise RequestError(
                "rules and groups stand too deep within each other",
                where="grammar",
                expected=f"at most {MOST_DEPTH} levels",
            )
    return order, recursive


def _one_lexeme(rules: Rules, order: list[str]) -> str:
    """Terminals all the way: `start` is one of them, or nothing."""
    names = {name: f"T{k}" for k, name in enumerate(order)}
    lines = [f"{names[r]}: {_alternatives(rules[r], names)}" for r in order]
    root = f"start: {names['root']}"
    return "\n".join([root, *lines]) + "\n"


def _parsed(rules: Rules, reached: list[str]) -> str:
    names = {name: "start" if name == "root" else f"r{k}" for k, name in enumerate(reached)}
    return "\n".join(f"{names[r]}: {_alternatives(rules[r], names)}" for r in reached) + "\n"


def _alternatives(alternatives: list[tuple[Item, ...]], names: dict[str, str]) -> str:
    return " | ".join(
        " ".join(_item(i, names) for i in a if i.most != 0) or '""' for a in alternatives
    )


def _item(item: Item, names: dict[str, str]) -> str:
    atom = item.atom
    text = _class(atom) if isinstance(atom, Chars) else names[atom.name]
    return text + _count(item.least, item.most)


def _count(least: int, most: int) -> str:
    plain = {(1, 1): "", (0, 1): "?", (0, UNBOUNDED): "*", (1, UNBOUNDED): "+"}
    found = plain.get((least, most))
    if found is not None:
        return found
    if most == UNBOUNDED:
        return f"{{{least},}}"
    return f"{{{least},{most}}}"


def _class(chars: Chars) -> str:
    parts = []
    for low, high in chars.ranges:
        parts.append(_code(low) if low == high else f"{_code(low)}-{_code(high)}")
    return f"/[{''.join(parts)}]/"


def _code(code: int) -> str:
    return rf"\x{{{code:x}}}"
