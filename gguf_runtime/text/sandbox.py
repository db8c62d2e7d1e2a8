"""The Jinja environment that chat templates are written for, with limits.

It is the one of transformers: an immutable sandbox, `trim_blocks`, `lstrip_blocks`, loop controls,
the `generation` tag, `tojson` without HTML escaping, `raise_exception`, `strftime_now`. A template
comes with a file from anywhere, so every loop and call looks at the clock, and no step may build a
text or list beyond MAX_SIZE.

Checked: tests/golden/text/test_templates.py, snippets and renderings of transformers 5.24.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, ext, filters, nodes, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 10.0
MAX_SIZE = 1 << 25  # characters or items
MAX_BITS = 1 << 16  # of an integer
STRIDE = 256  # steps of a loop between two looks at the clock

DEADLINE: ContextVar[float] = ContextVar("deadline")  # of time.monotonic()
NOW: ContextVar[datetime | None] = ContextVar("now", default=None)

_LOOP, _JOIN = "loop in bounds", "join in bounds"  # filters that no template can spell


class LimitError(Exception):
    """The template takes too long or builds too much."""


class Refusal(TemplateError):
    """The template called `raise_exception`."""


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox, its functions and its limits."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
        )
        self.filters |= {
            "tojson": _tojson,
            "center": _center,
            "indent": _indent,
            "join": _join,
            "replace": _replace,
            _LOOP: _watched,
            _JOIN: _joined,
        }
        self.globals |= {
            "namespace": _Namespace,
            "raise_exception": _raise,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Bounds().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def concat(self, parts: Iterable[str]) -> str:
        """Joins what a template, a macro or a block gives out."""
        size, out = 0, []
        for part in parts:
            size += len(part)
            _check_size(size)
            out.append(part)
        return "".join(out)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Checks what an operator would build, then applies it."""
        check_time()
        _check_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        check_time()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            _check_method(__obj.__name__, owner, args)
        return super().call(__context, __obj, *args, **kwargs)


class Generation(ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it shows its body."""

    tags = {"generation"}  # noqa: RUF012 - so declared by jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """The body in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller: Callable[[], str]) -> str:
        return caller()


class _Bounds(NodeTransformer):
    """Sends what every loop runs over, and every `a ~ b`, through a filter of ours."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _LOOP, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, _JOIN, [], [], None, None, lineno=node.lineno)


class _Namespace(Namespace):
    """A namespace whose names do not begin with an underscore."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}: it begins with an underscore")
        super().__setitem__(name, value)


def check_time() -> None:
    """Ends a rendering whose time is over."""
    if time.monotonic() > DEADLINE.get(float("inf")):
        raise LimitError("it takes too long")


def _check_size(size: float) -> None:
    if size > MAX_SIZE:
        raise LimitError(f"it builds more than {MAX_SIZE:,} characters or items")


def _watched(items: Iterable[Any]) -> Iterator[Any]:
    for i, item in enumerate(items):
        if i % STRIDE == 0:
            check_time()
        yield item


def _joined(parts: Iterable[Any], separator: str = "") -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


@pass_eval_context
def _join(context: EvalContext, value: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = map(filters.make_attrgetter(context.environment, attribute), value)
    return _joined(_watched(value), str(d))


@pass_eval_context
def _replace(context: EvalContext, s: Any, old: Any, new: Any, count: Any = None) -> str:
    _check_replace(str(s), old, new)
    return filters.do_replace(context, s, old, new, count)


def _center(value: Any, width: int = 80) -> str:
    _check_size(width)
    return filters.do_center(value, width)


def _indent(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    _check_size(str(s).count("\n") * (width if isinstance(width, int) else len(width)))
    return filters.do_indent(s, width, first, blank)


def _check_replace(text: str, old: Any, new: Any) -> None:
    _check_size(len(text) + text.count(str(old)) * len(str(new)))


def _check_method(name: str, text: str, args: tuple[Any, ...]) -> None:
    """A method of a text that may build a much longer one."""
    for value in args:
        if isinstance(value, int):
            _check_size(value)  # center, ljust, zfill, expandtabs, …
    if name == "replace" and len(args) > 1:
        _check_replace(text, args[0], args[1])
    elif name == "join" and args and isinstance(args[0], list | tuple):
        _check_size(sum(len(text) + len(v) for v in args[0] if isinstance(v, str)))
    elif name == "format":
        _check_widths(text)


def _check_binop(operator: str, left: Any, right: Any) -> None:
    if operator == "+":
        if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            _check_size(len(left) + len(right))
    elif operator == "%":
        if isinstance(left, str):
            _check_widths(left)
    elif isinstance(left, int) and isinstance(right, int):
        times = right if operator == "**" else 1
        if left.bit_length() * times + right.bit_length() > MAX_BITS:
            raise LimitError("it builds a number that is too large")
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | list | tuple) and isinstance(times, int):
                _check_size(len(many) * times)


def _check_widths(template: str) -> None:
    """A format such as "%999999999d": any long number in it is refused."""
    digits = 0
    for c in template:
        digits = digits + 1 if c.isdigit() else 0
        if digits > 6:
            raise LimitError("it pads a text too far")


def _raise(message: str) -> NoReturn:
    raise Refusal(message)


def _strftime_now(form: str) -> str:
    return (NOW.get() or datetime.now()).strftime(form)


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
