"""Values of options: words of the command line and the environment, values of TOML and JSON.

Plain types are converted here, with messages that name where a value stands, what it may be, and what it
was; typer would load pydantic for it.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

from gguf_runtime.hub.near import suggestion

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off", "")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class UsageError(Exception):
    """Wrong usage: exit code 2."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = list(lines)


class Plain:
    """Converts what an option is given; stands in for typer's pydantic adapter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value in the type that the signature asks for."""
        return read(value, param, _place(param, ctx))


def read(value: Any, param: Any, where: str) -> Any:
    """A value in the type of an option; `where` begins the message of a UsageError."""
    if value is None:
        return () if param.multiple or param.nargs == -1 else None
    kind = param.type_descriptor.annotation
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
        values = value if isinstance(value, list | tuple) else [value]
        return [_convert(v, kind, param, where) for v in values]
    return _convert(value, kind, param, where)


def _convert(value: Any, kind: Any, param: Any, where: str) -> Any:
    choices = param.type_descriptor.choices
    if choices is not None:
        if isinstance(value, bool) and {"on", "off"} <= set(choices):
            value = "on" if value else "off"
        if value in choices:
            return value
        near = suggestion(str(value), [str(c) for c in choices])
        raise UsageError(
            f"{where}: unknown choice",
            f"expected {', '.join(map(str, choices))}, got {value!r}",
            *([f"did you mean {near}?"] if near else []),
        )
    if kind is bool:
        return _truth(value, where)
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # `context = 4096`
    if kind is str and not isinstance(value, str):
        raise _not("a text", value, where)
    if kind not in (int, float):
        return value
    return _number(value, kind, param, where)


def _number(value: Any, kind: type, param: Any, where: str) -> int | float:
    words = _KINDS[kind]
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number: int | float = kind(value)
        if not isinstance(value, str) and number != value:
            raise ValueError
    except (ValueError, OverflowError):
        raise _not(words, value, where) from None
    low, high = param.min, param.max
    if (
        number != number
        or (low is not None and number < low)
        or (high is not None and number > high)
    ):
        raise UsageError(f"{where}: out of range", f"expected {_range(low, high)}, got {value}")
    return number


def _truth(value: Any, where: str) -> bool:
    word = str(value).lower()
    if word not in (*TRUE, *FALSE):
        raise _not("true or false", value, where)
    return word in TRUE


def _not(words: str, value: Any, where: str) -> UsageError:
    return UsageError(f"{where}: not {words}", f"expected {words}, got {value!r}")


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at least {low:,}" if low is not None else f"at most {high or 0:,}"
    return f"{low:,} to {high:,}"


def _place(param: Any, ctx: Any) -> str:
    """Where the value of an option came from, as a message names it."""
    source = ctx.get_parameter_source(param.name)
    if source is not None and source.name == "ENVIRONMENT":
        return str(param.envvar)
    return f"--{long_name(param)}" if param.param_type_name == "option" else str(param.name).upper()


def long_name(param: Any) -> str:
    """`max-tokens`: an option's name, without dashes, as a configuration file has it."""
    return str(next(o for o in param.opts if o.startswith("--")))[2:]
