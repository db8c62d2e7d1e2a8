"""From argv to an exit code: finds the command, runs it, turns every ending into words and a number.

Help of the program itself comes from the table alone: no command is imported for it.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from gguf_runtime.cli.terminal import OutputError, Terminal, start
from gguf_runtime.errors import ExitCode, GGUFRuntimeError

if TYPE_CHECKING:
    from typer.core import TyperCommand

EXAMPLES = """examples:
  gg run smollm2 "Why is the sky blue?"
  cat notes.txt | gg run smollm2 "Summarise in one sentence"
  gg chat smollm2
"""
EARLY_FLAGS = {
    "--quiet": "quiet",
    "-q": "quiet",
    "--verbose": "verbose",
    "-v": "verbose",
    "--debug": "debug",
    "--no-color": "no_color",
    "--strict": "strict",
    "--no-config": "no_config",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A command.

    target    `module.function` below `gguf_runtime.cli`
    summary   a line of help
    examples  command lines that end its help
    aliases   other names
    """

    name: str
    target: str
    summary: str
    examples: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


NO_MEMORY = ["this machine has not enough memory for that", "try a smaller --context"]


class Terminated(KeyboardInterrupt):
    """SIGTERM; ends things the way SIGINT does, with its own exit code."""


def dispatch(commands: Sequence[Row]) -> int:
    """Run the program; every way out is a row of ExitCode."""
    terminal = start()
    code = _guarded(commands, sys.argv[1:], terminal)
    terminal.clear()
    return int(_flushed(terminal.closing_code(code), terminal))


def _guarded(commands: Sequence[Row], args: list[str], terminal: Terminal) -> ExitCode:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(commands, args, terminal)
    except GGUFRuntimeError as e:
        if terminal.debug:
            raise
        terminal.error(e.lines())
        return e.exit_code
    except Terminated:
        return ExitCode.TERMINATED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OutputError as e:
        if e.quiet:
            return ExitCode.DONE
        terminal.error([e.line])
        return ExitCode.OUTPUT
    except BrokenPipeError:
        return ExitCode.DONE
    except MemoryError:
        terminal.error(NO_MEMORY)
        return ExitCode.MACHINE
    except Exception as e:
        if terminal.debug:
            raise
        from gguf_runtime.cli.parse import UsageError

        if isinstance(e, UsageError):
            terminal.error(e.lines)
            return ExitCode.USAGE
        if _lacks_memory(e):
            terminal.error(NO_MEMORY)
            return ExitCode.MACHINE
        fact = f"internal fault: {type(e).__name__}: {e}".splitlines()[0]
        terminal.error([fact, "add --debug for the traceback, and please report it"])
        return ExitCode.INTERNAL


def _lacks_memory(e: BaseException | None) -> bool:
    """Whether an error, or what it came from, is that there was no memory for a library or a thread."""
    while e is not None:
        words = str(e).lower()
        if isinstance(e, OSError) and e.errno == errno.ENOMEM:
            return True
        if isinstance(e, ImportError) and ("failed to map" in words or "allocate" in words):
            return True
        if isinstance(e, RuntimeError) and "can't start new thread" in words:
            return True
        e = e.__cause__ or e.__context__
    return False


def _run(commands: Sequence[Row], args: list[str], terminal: Terminal) -> ExitCode:
    args = _early_flags(args, terminal)
    program = _program()
    if not args or args[0] in ("-h", "--help"):
        terminal.setup()
        terminal.write(_help(commands, program))
        return ExitCode.DONE
    if args[0] == "--version":
        terminal.setup()
        from gguf_runtime.cli.version import version_line

        terminal.line(version_line())
        return ExitCode.DONE
    if args[0] == "help":
        args = [*args[1:2], "--help"]
        if len(args) == 1:
            return _run(commands, args, terminal)
    by_name = {n: row for row in commands for n in (row.name, *row.aliases)}
    row = by_name.get(args[0])
    from gguf_runtime.cli import parse

    if row is None:
        raise _unknown(args[0], list(by_name), program)
    return parse.call(load_command(row), program, args[1:], terminal)


def load_command(row: Row) -> TyperCommand:
    """Import a command's module and read its parameters."""
    from gguf_runtime.cli import parse

    module, function = row.target.rsplit(".", 1)
    body = getattr(importlib.import_module(f"gguf_runtime.cli.{module}"), function)
    return parse.build(row.name, body, row.examples)


def _unknown(word: str, names: list[str], program: str) -> Exception:
    from gguf_runtime.cli.parse import UsageError
    from gguf_runtime.errors import show
    from gguf_runtime.hub.near import suggestion

    near = suggestion(word, names)
    hint = f"did you mean {program} {near}?" if near else f"see: {program} --help"
    kind = "option" if word.startswith("-") else "command"
    return UsageError(f"no {kind} {show(word)}", hint)


def _early_flags(args: list[str], terminal: Terminal) -> list[str]:
    for i, arg in enumerate(args):
        if arg not in EARLY_FLAGS:
            return args[i:]
        setattr(terminal, EARLY_FLAGS[arg], True)
    return []


def _help(commands: Sequence[Row], program: str) -> str:
    width = max(len(row.name) for row in commands) + 4
    rows = "".join(f"  {row.name:<{width}}{row.summary}\n" for row in commands)
    return (
        f"usage: {program} COMMAND [arguments]\n\n"
        "Run GGUF language models on this machine's CPU.\n\n"
        f"commands:\n{rows}\n{EXAMPLES}\n"
        f"{program} COMMAND --help tells more; gg is a short name of gguf-runtime.\n"
    )


def _program() -> str:
    name = os.path.basename(sys.argv[0] or "").removesuffix(".exe")
    return name if name in ("gg", "gguf-runtime") else "gguf-runtime"


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


def _flushed(code: ExitCode, terminal: Terminal) -> ExitCode:
    """Flush what is left; a stream that refuses is pointed at the null device, so exit is quiet."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _to_null()
    except (OSError, ValueError) as e:
        _to_null()
        if code is ExitCode.DONE:
            terminal.error([f"the output cannot be written: {str(e).lower()}"])
            return ExitCode.OUTPUT
    return code


def _to_null() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
