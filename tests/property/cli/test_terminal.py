"""Progress: a line that is redrawn on a terminal, and few plain lines elsewhere."""

from __future__ import annotations

import io
import itertools
import re

import pytest

from gguf_runtime.cli import terminal as module
from gguf_runtime.cli.terminal import Terminal


class Screen(io.StringIO):
    """stderr of either kind."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def stage(monkeypatch):
    """stage(is_terminal): the stream that stands for stderr, and a clock to turn."""

    def make(is_terminal: bool):
        now = [100.0]
        screen = Screen(is_terminal)
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        return screen, now

    return make


def work(terminal: Terminal, now: list[float], seconds: int, total: int = 8192) -> None:
    """A piece of work that takes so long, told of four times a second."""
    for k in range(4 * seconds + 1):
        terminal.progress("reading", total * k // (4 * seconds), total)
        now[0] += 0.25


def test_short_work_prints_nothing_where_nobody_watches(stage):
    screen, now = stage(False)
    work(Terminal(), now, 8)

    assert screen.getvalue() == ""


def test_long_work_prints_a_line_at_the_start_and_one_every_half_minute(stage):
    screen, now = stage(False)
    times = []
    write = screen.write
    screen.write = lambda text: (times.append(now[0] - 100.0), write(text))[1]  # type: ignore[method-assign]
    work(Terminal(), now, 100)

    lines = screen.getvalue().splitlines()
    assert len(lines) == 4
    assert times[0] <= 2.0  # as soon as it is seen to take longer than ten seconds
    assert [round(b - a) for a, b in itertools.pairwise(times)] == [30, 30, 30]
    assert all(re.fullmatch(r"reading [\d,]+/8,192 tokens, \d+ s left", line) for line in lines)
    assert "\x1b" not in screen.getvalue()


def test_work_of_unknown_length_is_told_of_after_ten_seconds(stage):
    screen, now = stage(False)
    terminal = Terminal()
    for _ in range(60):
        terminal.progress("waiting")
        now[0] += 0.25

    assert screen.getvalue() == "waiting …\n"


def test_a_terminal_gets_one_line_that_is_taken_away_at_the_end(stage):
    screen, now = stage(True)
    work(Terminal(), now, 60)

    drawn = screen.getvalue().split("\r")
    assert "reading 4,096/8,192 tokens, 30 s left\x1b[K" in drawn
    assert "\n" not in screen.getvalue()
    assert drawn[-1] == "\x1b[K"


def test_quiet_work_is_quiet_on_both(stage):
    for is_terminal in (False, True):
        screen, now = stage(is_terminal)
        work(Terminal(quiet=True), now, 100)

        assert screen.getvalue() == ""


def test_an_error_ends_the_line_of_progress_and_is_never_silenced(stage):
    screen, now = stage(True)
    terminal = Terminal(quiet=True, no_color=True)
    terminal.error(["it went wrong", "do this"])
    assert screen.getvalue() == "error: it went wrong\n  do this\n"

    screen, now = stage(True)
    terminal = Terminal(no_color=True)
    terminal.progress("reading", 1, 9)
    now[0] += 1
    terminal.progress("reading", 2, 9)
    terminal.error(["it went wrong"])
    assert screen.getvalue().endswith("\r\x1b[Kerror: it went wrong\n")


def test_reasoning_ends_its_line_before_anything_else_comes(stage, capsys):
    screen, _ = stage(True)
    terminal = Terminal(no_color=True)
    terminal.think("hm")
    terminal.think("m")
    terminal.notice("code", "something")

    assert screen.getvalue() == "hmm\nnotice: something\n"
