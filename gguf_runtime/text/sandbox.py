"""The Jinja environment that chat templates are written for, with limits.

It is the one of transformers: an immutable sandbox, `trim_blocks`, `lstrip_blocks`, loop controls,
the `generation` tag, `tojson` without HTML escaping, `raise_exception`, `strftime_now`. A template
comes with a file from anywhere, so every loop and call looks at the clock, and no step may build a
text or list beyond a bound (`limits.py`).

Checked: tests/golden/text/test_templates.py, snippets and renderings of transformers 5.24.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, ext, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, generate_lorem_ipsum
from jinja2.visitor import NodeTransformer

from gguf_runtime.text import limits

NOW: ContextVar[datetime | None] = ContextVar("now", default=None)

_LOOP, _JOIN = "loop in bounds", "join in bounds"  # filters that no template can spell


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
            "join": limits.join_filter,
            "replace": limits.replace_filter,
            "format": limits.format_filter,
            "sum": limits.sum_filter,
            "indent": limits.indent_filter,
            "wordwrap": limits.wordwrap_filter,
            **{
                name: limits.with_small_numbers(self.filters[name])
                for name in ("batch", "center", "slice")
            },
            _LOOP: limits.watched,
            _JOIN: limits.joined,
        }
        functions: dict[str, Any] = {
            "lipsum": limits.with_small_numbers(generate_lorem_ipsum, each=1 << 15),
            "namespace": _Namespace,
            "raise_exception": _raise,
            "strftime_now": _strftime_now,
        }
        self.globals |= functions

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Bounds().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def concat(self, parts: Iterable[str]) -> str:
        """Joins what a template, a macro or a block gives out."""
        size, out = 0, []
        for part in parts:
            size += len(part)
            limits.check_size(size)
            out.append(part)
        return "".join(out)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Checks what an operator would build, then applies it."""
        limits.check_time()
        limits.check_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        limits.check_time()
        # Since 3.1.6 the sandbox hands out str.format in a wrapper of its own.
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes):
            args = limits.checked_arguments(method.__name__, owner, args, kwargs)
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
    if isinstance(indent, int):
        limits.check_size(indent * 64)
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
