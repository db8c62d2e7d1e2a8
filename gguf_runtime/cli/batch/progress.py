"""How far a batch is: one line at a terminal, else a plain line at the start and every 30 s."""

from __future__ import annotations

import threading
import time
from typing import Any

from gguf_runtime.cli.terminal import NEXT_LINE_S, Terminal


class Progress:
    """Counts lines and tokens of this run. `total` is None where nobody knows how many come."""

    def __init__(self, terminal: Terminal, total: int | None, before: int, errors: int) -> None:
        self._terminal, self._total, self._before = terminal, total, before
        self.begin = time.monotonic()
        self._said = self.begin
        self.errors_before = errors
        self.done = self.errors = 0
        self.prompt = self.cached = self.generated = 0
        self.notices: dict[str, int] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Progress:
        """From here on the line is kept up to date, also while no answer comes."""
        if not self._terminal.quiet:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._terminal.clear()

    def count(self, facts: dict[str, Any], *, error: bool) -> None:
        """A line was written."""
        with self._lock:
            self._count(facts, error)

    def _count(self, facts: dict[str, Any], error: bool) -> None:
        self.done += 1
        self.errors += error
        self.prompt += facts["usage"]["prompt"]
        self.generated += facts["usage"]["generated"]
        self.cached += facts["timings"]["cached"]
        for notice in facts["notices"]:
            code = notice["code"]
            if code not in self.notices:
                self._terminal.notice(code, f"line {facts['line']:,}: {notice['message']}")
            self.notices[code] = self.notices.get(code, 0) + 1
        self.show()

    def show(self) -> None:
        """Tell, where it is time to."""
        with self._lock:
            self._show()

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            self.show()

    def _show(self) -> None:
        if self._terminal.err_is_terminal:
            self._terminal.status(self.line())
        elif time.monotonic() - self._said >= NEXT_LINE_S:
            self._said = time.monotonic()
            self._terminal.say(self.line())

    def line(self) -> str:
        """Lines, errors, speed, time left."""
        spent = time.monotonic() - self.begin
        done, errors = self._before + self.done, self.errors_before + self.errors
        parts = [f"answered {done:,}" + (f"/{self._total:,}" if self._total is not None else "")]
        if errors:
            parts.append(f"{errors:,} of them with errors")
        if self.generated:
            parts.append(f"{self.generated / spent:,.0f} tokens/s")
        if self._total is not None and self.done and self._total > done:
            parts.append(f"{span(spent / self.done * (self._total - done))} left")
        return ", ".join(parts)

    def summary(self) -> str:
        """What this run did, for its end."""
        spent = max(time.monotonic() - self.begin, 1e-9)
        found = f" ({self.cached:,} of them found in the cache)" if self.cached else ""
        return (
            f"answered {lines(self.done)} in {span(spent)}: {self.prompt:,} tokens in prompts{found},"
            f" {self.generated:,} in answers, {self.generated / spent:,.1f} a second"
        )


def lines(n: int) -> str:
    """`1 line`, `2 lines`."""
    return f"{n:,} line{'' if n == 1 else 's'}"


def span(seconds: float) -> str:
    """A time in the two largest units that matter."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days {hours % 24} h"
