"""What is wrong with a grammar as a whole: names without rules, and rules that begin with themselves."""

from __future__ import annotations

from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.constraint.gbnf import Ref, Rules


def refuse_unknown(rules: Rules) -> None:
    """RequestError for the name of a rule that is not there."""
    for name, alternatives in rules.items():
        for items in alternatives:
            for item in items:
                if isinstance(item.atom, Ref) and item.atom.name not in rules:
                    raise RequestError(
                        f"the grammar has no rule named {show(item.atom.name)}",
                        where=f"grammar, rule {name.partition('(')[0]}",
                    )


def nullable(rules: Rules) -> set[str]:
    """Rules that can be the empty text."""
    found: set[str] = set()
    waits: dict[
        str, list[list[str]]
    ] = {}  # rule -> alternatives that lack it; last: whose they are
    for name, alternatives in rules.items():
        for items in alternatives:
            lacks = {i.atom.name if isinstance(i.atom, Ref) else "" for i in items if i.least}
            if "" in lacks:
                continue
            group = [*lacks, name]
            for other in lacks:
                waits.setdefault(other, []).append(group)
            if not lacks:
                found.add(name)
    work = list(found)
    while work:
        name = work.pop()
        for group in waits.get(name, ()):
            group.remove(name)
            if len(group) == 1 and group[0] not in found:
                found.add(group[0])
                work.append(group[0])
    return found


def refuse_left_recursion(rules: Rules) -> None:
    """A rule that can begin with itself; through rules that can be empty too."""
    empty = nullable(rules)
    first: dict[str, list[str]] = {}
    for name, alternatives in rules.items():
        first[name] = []
        for items in alternatives:
            for i in items:
                if i.most == 0:
                    continue
                if not isinstance(i.atom, Ref):
                    if i.least:
                        break
                    continue
                first[name].append(i.atom.name)
                if i.least and i.atom.name not in empty:
                    break
    state: dict[str, int] = {}  # 1: being looked at, 2: done
    for start in rules:
        stack = [(start, iter(first[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            name, rest = stack[-1]
            for other in rest:
                if state.get(other) == 1:
                    raise RequestError(
                        f"the rule {show(other.partition('(')[0])} can begin with itself",
                        where="grammar",
                        hint="write the repetition with * or +, or put the recursion at the end",
                    )
                if other not in state:
                    state[other] = 1
                    stack.append((other, iter(first[other])))
                    break
            else:
                state[name] = 2
                stack.pop()
