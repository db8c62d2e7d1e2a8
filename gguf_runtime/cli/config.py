"""The configuration file: defaults of options, between the environment and the model file.

    temperature = 0.2            # for every command that has the option, by its long name
    threads = 2

    [run]                        # for one command
    json = true

`~/.config/gguf-runtime/config.toml`, or the file that GGUF_RUNTIME_CONFIG names (empty: none). The command
line and the environment come first; `--no-config` leaves the file out; `replay` never reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gguf_runtime.cli.values import UsageError, long_name, read
from gguf_runtime.errors import escape
from gguf_runtime.hub.near import suggestion

VARIABLE = "GGUF_RUNTIME_CONFIG"
NAME = "config.toml"
NOT_CONFIGURED = ("replay",)
# What cannot be a default: what one call is about, and how to get help.
_EVERYWHERE = ("quiet", "verbose", "no_color", "strict")


def config_path() -> Path | None:
    """The file, which need not exist; None where no home folder is known or none is wanted."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    home = os.environ.get("XDG_CONFIG_HOME")
    if home and os.path.isabs(home):
        return Path(home) / "gguf-runtime" / NAME
    found = os.path.expanduser("~/.config/gguf-runtime")
    return Path(found) / NAME if os.path.isabs(found) else None


def apply(command: Any, ctx: Any, values: dict[str, Any]) -> list[str]:
    """Put the file's values where nobody gave one.

    Args:
        command: whose parameters may be set.
        ctx: typer's context, which is told that a value came from the file.
        values: parameter -> value, changed in place.

    Returns:
        `temperature 0.2` for each value that was taken.

    Raises:
        UsageError: the file cannot be read, names no option, or a value is wrong.
    """
    path = None if command.name in NOT_CONFIGURED else config_path()
    found = {} if path is None else _load(path)
    if not found:
        return []
    source = _sources()
    taken = []
    for param, name, value in _settings(found, command, str(path)):
        if ctx.get_parameter_source(param.name) is source.DEFAULT and param.name in values:
            values[param.name] = read(value, param, f"{path}: {name}")
            ctx.set_parameter_source(param.name, source.DEFAULT_MAP)
            taken.append(f"{name} {_words(value)}")
    return taken


def _settings(found: dict[str, Any], command: Any, path: str) -> list[tuple[Any, str, Any]]:
    """(parameter, name, value) that concern a command; its own table comes last and counts."""
    from gguf_runtime.cli.app import COMMANDS
    from gguf_runtime.cli.settings import table

    own = {str(p.name): p for p in command.params}
    commands = [row.name for row in COMMANDS]
    shared = [*table(), *_EVERYWHERE]
    for name, value in found.items():
        if isinstance(value, dict):
            _known(name, commands, path, "command")
        else:
            _known(name, shared, path, "setting")
    chosen: dict[str, tuple[Any, str, Any]] = {}
    for name, value in found.items():
        param = own.get(_key(name))
        if param is not None and not isinstance(value, dict):
            chosen[_key(name)] = param, name, value
    options = {
        long_name(p): p
        for p in command.params
        if p.param_type_name == "option" and p.name not in ("help", "no_config")
    }
    for name, value in found.get(command.name, {}).items():
        key = _known(name, list(options), path, f"option of {command.name}", "-")
        chosen[str(options[key].name)] = options[key], name, value
    return list(chosen.values())


def _known(name: str, names: list[str], path: str, kind: str, dash: str = "_") -> str:
    key = name.replace("_", "-") if dash == "-" else _key(name)
    if key in names:
        return key
    near = suggestion(key, names)
    hint = f"did you mean {near.replace('_', '-')}?" if near else "see: gguf-runtime run --help"
    raise UsageError(f"{path}: no {kind} {name!r}", hint)


def _words(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _load(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if os.environ.get(VARIABLE):
            hint = f"{VARIABLE} names it: unset that, or leave the file out: --no-config"
            raise UsageError(f"{path}: no such file", hint) from None
        return {}
    except NotADirectoryError:
        return {}
    except OSError as e:
        raise UsageError(f"{path}: {(e.strerror or 'cannot be read').lower()}", _AROUND) from e
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path}: not TOML: {escape(str(e))}", _AROUND) from e


_AROUND = "leave it out: --no-config"


def _sources() -> Any:
    from typer._click.core import ParameterSource

    return ParameterSource
