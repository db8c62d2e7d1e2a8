"""Options that several commands share, as one parameter of a command.

A group is a frozen dataclass whose fields are annotated like parameters of a command. A command that takes
`settings: Settings` gets all its options; where each value came from stands in `origins`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from gguf_runtime.errors import ExitCode

ORIGINS = "origins"
ENV = "environment"
COMMAND_LINE = "command line"
_NAMES = {"COMMANDLINE": COMMAND_LINE, "ENVIRONMENT": ENV, "DEFAULT_MAP": "config.toml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The parent of all groups.

    origins  option -> "command line", "environment NAME" or "config.toml"; absent where nobody gave it
    """

    origins: dict[str, str] = field(default_factory=dict)


def ungrouped(body: Callable[..., ExitCode | None]) -> Callable[..., ExitCode | None]:
    """The same command with the options of its groups as parameters of their own."""
    found = inspect.signature(body, eval_str=True)
    groups: dict[str, tuple[type[Group], list[str]]] = {}
    flat: list[inspect.Parameter] = []
    for p in found.parameters.values():
        if not (isinstance(p.annotation, type) and issubclass(p.annotation, Group)):
            flat.append(p)
            continue
        options = _parameters(p.annotation)
        groups[p.name] = p.annotation, [o.name for o in options]
        flat += options
    if not groups:
        return body

    @functools.wraps(body)
    def command(**values: Any) -> ExitCode | None:
        origins = _origins()
        for name, (kind, names) in groups.items():
            own = {k: origins[k] for k in names if k in origins}
            values[name] = kind(**{k: values.pop(k) for k in names}, origins=own)
        return body(**values)

    del command.__wrapped__
    flat = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flat]
    command.__signature__ = found.replace(parameters=flat)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


def _parameters(group: type[Group]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]
        )
        for f in fields(group)
        if f.name != ORIGINS
    ]


def _origins() -> dict[str, str]:
    """Option -> where its value came from, of the command that is being run."""
    from typer._click.globals import get_current_context

    ctx = get_current_context()
    found = {}
    for param in ctx.command.params:
        source = ctx.get_parameter_source(str(param.name))
        origin = _NAMES.get(source.name if source is not None else "")
        if origin is not None:
            found[str(param.name)] = f"{origin} {param.envvar}" if origin == ENV else origin
    return found
