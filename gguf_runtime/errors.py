"""The exceptions of gguf_runtime and the exit codes of the command line.

GGUFRuntimeError          70  internal fault when raised bare; otherwise one of its kinds:
├── FileError              3  a file is missing, unreadable, damaged or no GGUF file
├── ModelError             3  the file is sound, but this model cannot be used (unknown type, wrong key)
├── RequestError           1  the request cannot be done (prompt too long, impossible constraint)
├── MachineError           4  this machine cannot do it (memory, instruction set, fork)
└── DownloadError          5  network or download

Every message says what is wrong, where, what was expected, what was found and what to do:

    phi.gguf: tensor blk.31.ffn_down.weight (Q4_K) ends past the end of the file
      expected at least 4,683,073,536 bytes, got 4,100,000,000
      the download is incomplete: gguf-runtime pull phi
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import ClassVar

__all__ = [
    "DownloadError",
    "ExitCode",
    "FileError",
    "GGUFRuntimeError",
    "MachineError",
    "ModelError",
    "RequestError",
    "show",
]

SHOWN = 200  # characters of a value from a file that a message repeats


class ExitCode(IntEnum):
    """What the process tells its caller, and in words."""

    DONE = 0, "done, also when cut by length, context or time: see finish_reason"
    REQUEST = 1, "the request failed"
    USAGE = 2, "wrong usage"
    MODEL = 3, "the model cannot be used: missing, damaged, unsupported"
    MACHINE = 4, "this machine cannot do it: memory, instruction set"
    DOWNLOAD = 5, "network or download"
    NOT_CLEAN = 6, "finished, not clean: error lines, notices with --strict, a replay that differs"
    OUTPUT = 7, "the output cannot be written"
    INTERNAL = 70, "internal fault"
    INTERRUPTED = 130, "stopped by SIGINT (Ctrl-C); what was said is written"
    TERMINATED = 143, "stopped by SIGTERM; what was said is written"

    words: str

    def __new__(cls, number: int, words: str = "") -> ExitCode:
        """A code with its words."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.words = words
        return code


class GGUFRuntimeError(Exception):
    """The parent of all errors that this library raises on purpose.

    Args:
        what: the fact, lower case, without a full stop.
        where: path, key, tensor or option that it is about; printed before the fact.
        expected: what would have been right.
        got: what was found instead.
        hint: what to do, as something that can be typed where possible.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(
        self,
        what: str,
        *,
        where: str | os.PathLike[str] | None = None,
        expected: object = None,
        got: object = None,
        hint: str | None = None,
    ) -> None:
        self.what = escape(what)
        self.where = None if where is None else escape(os.fspath(where))
        self.expected = None if expected is None else escape(str(expected))
        self.got = None if got is None else escape(str(got))
        self.hint = None if hint is None else escape(hint)
        super().__init__(self.what)

    def __str__(self) -> str:
        return "\n  ".join(self.lines())

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.what, self.where, self.expected, self.got, self.hint)
        return _rebuild, (type(self), *fields)

    def lines(self) -> list[str]:
        """One to three lines: fact; expected and got; what to do."""
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        facts = []
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        if self.got is not None:
            facts.append(f"got {self.got}")
        if facts:
            lines.append(", ".join(facts))
        if self.hint:
            lines.append(self.hint)
        return lines

    def as_dict(self) -> dict[str, str | int | None]:
        """The `error` object of the JSON output."""
        return {
            "type": type(self).__name__,
            "message": self.what,
            "where": self.where,
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
            "exit_code": int(self.exit_code),
        }


class FileError(GGUFRuntimeError):
    """A file is missing, unreadable, damaged or of another kind."""

    exit_code = ExitCode.MODEL


class ModelError(GGUFRuntimeError):
    """A sound file whose model cannot be used here."""

    exit_code = ExitCode.MODEL


class RequestError(GGUFRuntimeError):
    """A request that cannot be carried out."""

    exit_code = ExitCode.REQUEST


class MachineError(GGUFRuntimeError):
    """Something that this machine or process cannot do."""

    exit_code = ExitCode.MACHINE


class DownloadError(GGUFRuntimeError):
    """The network or a download did not deliver."""

    exit_code = ExitCode.DOWNLOAD


def escape(text: str) -> str:
    r"""The text with control characters as \xNN, so that a file cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _code(c) for c in text)


def show(value: object, limit: int = SHOWN) -> str:
    """A value from a file as a message may repeat it: printable, quoted if text, cut at `limit`."""
    if isinstance(value, bytes):
        value = value[: limit + 1].decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        text = escape(value[: limit + 1])
        return f'"{text[:limit]}…"' if len(text) > limit else f'"{text}"'
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = escape(str(value))
    return text if len(text) <= limit else text[:limit] + "…"


def _code(c: str) -> str:
    if ord(c) < 0x100:
        return f"\\x{ord(c):02x}"
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"


def _rebuild(
    kind: type[GGUFRuntimeError],
    what: str,
    where: str | None,
    expected: str | None,
    got: str | None,
    hint: str | None,
) -> GGUFRuntimeError:
    """Unpickles an error (worker processes send them)."""
    return kind(what, where=where, expected=expected, got=got, hint=hint)
