"""One test per row of ExitCode: which ending gives which number."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from gguf_runtime.cli import dispatch as program
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.terminal import OutputError, current
from gguf_runtime.errors import (
    DownloadError,
    ExitCode,
    FileError,
    GGUFRuntimeError,
    MachineError,
    ModelError,
    RequestError,
)


def ending(monkeypatch, capsys, body, *args):
    """Exit code and stderr of a program whose only command is `body`."""
    monkeypatch.setattr("gguf_runtime.cli.models.body", body, raising=False)
    monkeypatch.setattr(sys, "argv", ["gg", "do", *args])
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = program.dispatch((program.Row("do", "models.body", "does it"),))
    finally:
        signal.signal(signal.SIGTERM, before)
    return code, capsys.readouterr().err


def raising(error):
    def body() -> None:
        """Raise."""
        raise error

    return body


def test_done_is_0(monkeypatch, capsys):
    def body() -> None:
        """Do nothing."""

    assert ending(monkeypatch, capsys, body) == (0, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("x"), ExitCode.REQUEST),
        (UsageError("x"), ExitCode.USAGE),
        (ModelError("x"), ExitCode.MODEL),
        (FileError("x"), ExitCode.MODEL),
        (MachineError("x"), ExitCode.MACHINE),
        (MemoryError(), ExitCode.MACHINE),
        (DownloadError("x"), ExitCode.DOWNLOAD),
        (OutputError(OSError(28, "No space left on device")), ExitCode.OUTPUT),
        (GGUFRuntimeError("x"), ExitCode.INTERNAL),
        (ZeroDivisionError("x"), ExitCode.INTERNAL),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Exception) else str(int(x)),
)
def test_an_error_is_one_to_three_lines_and_its_number(monkeypatch, capsys, error, code):
    got, err = ending(monkeypatch, capsys, raising(error))
    assert got == code
    assert err.startswith("error: ")
    assert 1 <= err.count("\n") <= 3
    assert "Traceback" not in err


def test_interrupted_is_130(monkeypatch, capsys):
    assert ending(monkeypatch, capsys, raising(KeyboardInterrupt())) == (130, "")


def test_terminated_is_143(monkeypatch, capsys):
    def body() -> None:
        """Wait for the signal."""
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    assert ending(monkeypatch, capsys, body) == (143, "")


def test_a_closed_pipe_is_0_and_quiet(monkeypatch, capsys):
    error = OutputError(BrokenPipeError(32, "Broken pipe"))
    assert ending(monkeypatch, capsys, raising(error)) == (0, "")


def noticing() -> None:
    """Give a notice, twice."""
    current().notice("code", "something was done otherwise")
    current().notice("code", "something was done otherwise")


def test_a_notice_is_said_once_and_is_no_failure(monkeypatch, capsys):
    got = ending(monkeypatch, capsys, noticing)
    assert got == (0, "notice: something was done otherwise\n")


def test_strict_turns_a_notice_into_6(monkeypatch, capsys):
    assert ending(monkeypatch, capsys, noticing, "--strict")[0] == 6


def test_quiet_drops_the_notice_but_not_its_code(monkeypatch, capsys):
    assert ending(monkeypatch, capsys, noticing, "--strict", "--quiet") == (6, "")


def test_debug_shows_the_traceback(monkeypatch, capsys):
    with pytest.raises(ZeroDivisionError):
        ending(monkeypatch, capsys, raising(ZeroDivisionError("x")), "--debug")
