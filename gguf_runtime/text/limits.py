"""Bounds on what a chat template may do: time, and the size of whatever one step builds.

Each function here looks at the sizes first and only then lets jinja build. What is not listed can
grow its input by a small factor at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import Environment, filters, pass_environment, pass_eval_context
from jinja2.nodes import EvalContext

MAX_SECONDS = 10.0
MAX_SIZE = 1 << 25  # characters or items
MAX_BITS = 1 << 16  # of an integer
STRIDE = 256  # steps of a loop between two looks at the clock

DEADLINE: ContextVar[float] = ContextVar("deadline")  # of time.monotonic()

MANY = (str, bytes, list, tuple)


class LimitError(Exception):
    """The template takes too long or builds too much."""


def check_time() -> None:
    """Ends a rendering whose time is over."""
    if time.monotonic() > DEADLINE.get(float("inf")):
        raise LimitError("it takes too long")


def check_size(size: float) -> None:
    """Ends a rendering that builds too much."""
    if size > MAX_SIZE:
        raise LimitError(f"it builds more than {MAX_SIZE:,} characters or items")


def watched(items: Iterable[Any]) -> Iterator[Any]:
    """The items, with a look at the clock now and then."""
    for i, item in enumerate(items):
        if i % STRIDE == 0:
            check_time()
        yield item


def joined(parts: Iterable[Any], separator: str = "") -> str:
    """The texts of all parts, joined."""
    texts = [str(part) for part in parts]
    check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


@pass_eval_context
def join_filter(context: EvalContext, value: Any, d: Any = "", attribute: Any = None) -> str:
    """`join`, after a look at the sum of lengths."""
    if attribute is not None:
        value = map(filters.make_attrgetter(context.environment, attribute), value)
    return joined(watched(value), str(d))


@pass_eval_context
def replace_filter(context: EvalContext, s: Any, old: Any, new: Any, count: Any = None) -> str:
    """`replace`, after counting the places."""
    check_replace(str(s), old, new)
    return filters.do_replace(context, s, old, new, count)


def format_filter(value: str, *args: Any, **kwargs: Any) -> str:
    """`format`, without long paddings."""
    check_widths(str(value), (*args, *kwargs.values()))
    return filters.do_format(value, *args, **kwargs)


@pass_environment
def sum_filter(env: Environment, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    """`sum`, also of lists, within bounds."""
    if attribute is not None:
        iterable = map(filters.make_attrgetter(env, attribute), iterable)
    items = list(iterable)
    check_size(sum(len(item) for item in items if isinstance(item, list | tuple)))
    return sum(items, start)


def indent_filter(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    """`indent`, after counting the lines."""
    check_size(str(s).count("\n") * (width if isinstance(width, int) else len(width)))
    return filters.do_indent(s, width, first, blank)


@pass_environment
def wordwrap_filter(
    env: Environment,
    s: str,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    """`wordwrap`, with a line end in bounds."""
    check_size(len(s) * len(wrapstring or ""))
    return filters.do_wordwrap(env, s, width, break_long_words, wrapstring, break_on_hyphens)


def with_small_numbers(function: Callable[..., Any], each: int = 64) -> Callable[..., Any]:
    """A function that builds as much as its numbers say, `each` of unknown size."""

    @wraps(function)  # keeps jinja's marks on it
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int):
                check_size(value * each)
        return function(*args, **kwargs)

    return checked


def check_replace(text: str, old: Any, new: Any) -> None:
    """Refuses a replacement whose result is too long."""
    check_size(len(text) + text.count(str(old)) * len(str(new)))


def checked_arguments(
    name: str, text: str | bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments of a method of a text, if what it builds is not too long."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, int):
            check_size(value)  # center, ljust, zfill, expandtabs, widths of format, …
    if name == "replace" and len(args) > 1:
        check_replace(str(text), args[0], args[1])
    elif name == "join" and args:
        args = (list(watched(args[0])), *args[1:])
        check_size(sum(len(text) + len(v) for v in args[0] if isinstance(v, str | bytes)))
    elif name in ("format", "format_map"):
        check_widths(str(text), args)
    return args


def check_binop(operator: str, left: Any, right: Any) -> None:
    """Refuses operands whose result is too long or too large."""
    if operator == "+":
        if isinstance(left, MANY) and isinstance(right, MANY):
            check_size(len(left) + len(right))
    elif operator == "%":
        if isinstance(left, str | bytes):
            check_widths(str(left), right if isinstance(right, tuple) else (right,))
    elif isinstance(left, int) and isinstance(right, int):
        times = right if operator == "**" else 1
        if left.bit_length() * times + right.bit_length() > MAX_BITS:
            raise LimitError("it builds a number that is too large")
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, MANY) and isinstance(times, int):
                check_size(len(many) * times)


def check_widths(template: str, values: Iterable[Any]) -> None:
    """A format such as "%999999999d" or "%*d": long numbers in it, or large ones for it."""
    digits = 0
    for c in template:
        digits = digits + 1 if c.isdigit() else 0
        if digits > 6:
            raise LimitError("it pads a text too far")
    for value in values:
        if isinstance(value, int) and "*" in template:
            check_size(value)
