"""From a typed function to a command: typer reads the signature, the words and checks are ours.

Typer alone would render help with rich and convert values with pydantic, which costs 75 ms of CPU on
every start; so help is written here, and values are converted in `values`.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from gguf_runtime.cli import config
from gguf_runtime.cli.groups import ungrouped
from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.cli.values import Plain, UsageError
from gguf_runtime.errors import ExitCode
from gguf_runtime.hub.near import suggestion

# Spellings of other programs: they work, and help does not list them.
OLD_SPELLINGS = frozenset(
    [
        "--temp",
        "--n-predict",
        "--predict",
        "--max-new-tokens",
        "--ctx-size",
        "--system-prompt",
        "--json-schema",
        "--grammar-file",
    ]
)
# Options of other programs that make no sense here, and why.
FOREIGN = {
    "-ngl": "there is no GPU to give layers to",
    "--n-gpu-layers": "there is no GPU to give layers to",
    "--gpu-layers": "there is no GPU to give layers to",
    "-fa": "attention is always computed in one pass",
    "--flash-attn": "attention is always computed in one pass",
    "--mlock": "weights are repacked into memory of their own; nothing is locked",
    "--no-mmap": "the file is read once, in windows, and let go",
}
SECTIONS = ("prompt", "answer", "constraint", "sampling", "machine", "output")  # others follow
LAST = "other"
WIDTH = 100

__all__ = ["UsageError", "build", "call", "parameters"]


def common(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="no progress and no notices, only errors")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="say more about the work")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="tracebacks and the library's log")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="no colours")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit code 6 when there was any notice")
    ] = False,
    no_config: Annotated[
        bool, typer.Option("--no-config", help="leave the configuration file out")
    ] = False,
) -> None:
    """Options that every command has."""


class Command(TyperCommand):
    """A command with our help text."""

    def get_help_option(self, ctx: Any) -> Any:
        """`-h` and `--help`, converted like the other options."""
        option = super().get_help_option(ctx)
        option._runtime_param = Plain()  # type: ignore[union-attr]
        return option

    def get_help(self, ctx: Any) -> str:
        """Usage, what it does, arguments, options by section, examples."""
        return "\n".join(_help_lines(self, ctx.command_path))


def build(
    name: str, body: Callable[..., ExitCode | None], examples: Sequence[str] = ()
) -> TyperCommand:
    """A command of a function whose parameters are annotated with typer's Argument and Option."""
    command = _read(name, ungrouped(body))
    command.params.extend(p for p in _read("common", common).params)
    for param in command.params:
        param._runtime_param = Plain()  # type: ignore[attr-defined]
    command.epilog = "\n".join(f"  {e}" for e in examples)
    return command


def parameters(body: Callable[..., Any]) -> list[Any]:
    """Typer's parameters of a function, groups taken apart."""
    return list(_read("", ungrouped(body)).params)


def call(command: TyperCommand, program: str, args: list[str], terminal: Terminal) -> ExitCode:
    """Parse, set the terminal up, run the body."""
    _refuse_foreign(args, command)
    inner = command.callback
    assert inner is not None

    def with_terminal(**values: Any) -> Any:
        taken = []
        if not (values.pop("no_config") or terminal.no_config):
            taken = config.apply(command, ctx, values)
        for field in ("quiet", "verbose", "debug", "no_color", "strict"):
            setattr(terminal, field, values.pop(field) or getattr(terminal, field))
        terminal.setup()
        if taken:
            terminal.notice("config", f"from {config.NAME}: {', '.join(taken)}")
        return inner(**values)

    command.callback = with_terminal
    try:
        with command.make_context(f"{program} {command.name}", args) as ctx:
            code = command.invoke(ctx)
    except typer.Exit as e:
        return ExitCode(e.exit_code)
    except TyperException as e:
        raise _usage(e, command, program) from e
    return ExitCode.DONE if code is None else code


def _read(name: str, body: Callable[..., Any]) -> TyperCommand:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    settings = {"help_option_names": ["-h", "--help"]}
    app.command(name, cls=Command, context_settings=settings)(body)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def _refuse_foreign(args: Sequence[str], command: TyperCommand) -> None:
    takes_value = {
        o
        for p in command.params
        if isinstance(p, TyperOption) and not (p.is_flag or p.count)
        for o in p.opts
    }
    for before, arg in zip(["", *args], args, strict=False):
        if arg == "--":
            return
        if arg in FOREIGN and before not in takes_value:
            raise UsageError(f"{arg} has no meaning here: {FOREIGN[arg]}")


def _usage(e: TyperException, command: TyperCommand, program: str) -> UsageError:
    look = f"see: {program} {command.name} --help"
    wrong: str | None = getattr(e, "option_name", None)
    if type(e).__name__ == "NoSuchOption" and wrong:
        names = [o for p in command.params for o in p.opts if o not in OLD_SPELLINGS]
        near = suggestion(wrong, [n for n in names if n.startswith("--")])
        return UsageError(f"{program} {command.name} has no option {wrong}", _meant(near) or look)
    if type(e).__name__ == "MissingParameter":
        param = getattr(e, "param", None)
        name = getattr(param, "metavar", None) or getattr(param, "name", "an argument")
        return UsageError(f"{program} {command.name}: {name} is missing", look)
    text = e.format_message().rstrip(".")
    return UsageError(text[:1].lower() + text[1:], look)


def _meant(near: str | None) -> str | None:
    return f"did you mean {near}?" if near else None


def _help_lines(command: TyperCommand, path: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, WIDTH)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if isinstance(p, TyperOption) and not p.hidden]
    words = [f"{p.metavar}" if p.required else f"[{p.metavar}]" for p in arguments]
    lines = [" ".join(["usage:", path, *words, "[options]"]), ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    for p in arguments:
        lines += _entry(f"{p.metavar}", getattr(p, "help", "") or "", width)
    lines += [""] if arguments else []
    named = [str(p.rich_help_panel or LAST) for p in options]
    for section in dict.fromkeys([*SECTIONS, *(n for n in named if n != LAST), LAST]):
        rows = [p for p, n in zip(options, named, strict=True) if n == section]
        if rows:
            lines.append(f"{section}:")
            for p in rows:
                lines += _entry(_spelling(p), _description(p), width)
            if section == LAST:
                lines += _entry("-h, --help", "this text", width)
            lines.append("")
    return [*lines, "examples:", command.epilog] if command.epilog else lines[:-1]


def _spelling(p: TyperOption) -> str:
    names = sorted((o for o in p.opts if o not in OLD_SPELLINGS), key=len)
    short = ", ".join(names)
    text = short if names[0].startswith("-") and not names[0].startswith("--") else f"    {short}"
    return text if p.is_flag or p.count else f"{text} {p.metavar or _metavar(p)}"


def _metavar(p: TyperOption) -> str:
    choices = p.type_descriptor.choices
    if choices is not None:
        return "|".join(map(str, choices))
    kind: Any = p.type_descriptor.annotation
    return "N" if kind is int else "X" if kind is float else "TEXT"


def _description(p: TyperOption) -> str:
    text = p.help or ""
    if p.default in (None, False, "", 0) or p.multiple or "(default" in text:
        return text
    return f"{text} (default {p.default})"


def _entry(left: str, right: str, width: int) -> list[str]:
    column = 30
    wrapped = textwrap.wrap(right, max(width - column, 30)) or [""]
    first = f"  {left}"
    if len(first) >= column:
        return [first, *(" " * column + w for w in wrapped)]
    return [first.ljust(column) + wrapped[0], *(" " * column + w for w in wrapped[1:])]
