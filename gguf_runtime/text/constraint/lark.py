"""GBNF rules in the notation that llguidance reads (a dialect of Lark).

llguidance cuts the text into lexemes, greedily, before its parser sees it; GBNF knows no lexemes.
So a grammar without recursion becomes one lexeme, which is exact, and in any other grammar every code
point is a lexeme of its own, which is exact too: no code point's bytes begin another's.
"""

from __future__ import annotations

from gguf_runtime.text.constraint.gbnf import (
    UNBOUNDED,
    Chars,
    Item,
    Ref,
    Rules,
    Token,
)

MOST_UNROLLED = 50_000  # items of a grammar written as one expression


def to_lark(rules: Rules) -> str:
    """The same language as `root` of the rules."""
    reached = _reached(rules)
    if _has_tokens(rules, reached) or (order := _innermost_first(rules, reached)) is None:
        return _parsed(rules, reached)
    return _one_lexeme(rules, order)


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


def _has_tokens(rules: Rules, reached: list[str]) -> bool:
    return any(isinstance(i.atom, Token) for r in reached for items in rules[r] for i in items)


def _innermost_first(rules: Rules, reached: list[str]) -> list[str] | None:
    """An order in which every rule stands behind those that it uses; None with recursion."""
    uses = {
        r: [i.atom.name for items in rules[r] for i in items if isinstance(i.atom, Ref) and i.most]
        for r in reached
    }
    order: list[str] = []
    state = {"root": 1}
    stack = [("root", iter(uses["root"]))]
    while stack:
        name, rest = stack[-1]
        for other in rest:
            if state.get(other) == 1:
                return None
            if other not in state:
                state[other] = 1
                stack.append((other, iter(uses[other])))
                break
        else:
            state[name] = 2
            order.append(name)
            stack.pop()
    return order


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
    if isinstance(atom, Chars):
        text = _class(atom)
    elif isinstance(atom, Ref):
        text = names[atom.name]
    else:
        text = _token(atom)
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


def _token(token: Token) -> str:
    if isinstance(token.what, str):
        raise AssertionError("texts of tokens are ids by now")
    return f"<[^{token.what}]>" if token.other else f"<[{token.what}]>"
