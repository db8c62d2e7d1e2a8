"""`batch --dry-run`: what a run would read and write, and how long it would take, without an answer kept.

Prompts are counted exactly. The time comes from a trial: the first lines are answered for some seconds,
and the pace and length of their answers stand for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.batch.progress import lines, span
from gguf_runtime.cli.batch.request import Item
from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime import Model

TRIAL_S = 5.0  # of the trial
TRIAL_LINES = 64  # at most, and all at once where the engine takes so many
GRAIN = 8  # tokens; shared prefixes are found in whole grains …
REMEMBERED = 500_000  # … and so many of them are remembered


@dataclass(slots=True)
class Count:
    """What the input holds."""

    n: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)  # the first of them
    n_errors: int = 0
    tokens: int = 0
    shared: int = 0
    longest: tuple[int, int] = (0, 0)  # tokens, line
    limit: int = 0  # tokens of all answers at most
    first: list[dict[str, Any]] = field(default_factory=list)


def count(m: Model, items: Iterator[Item], terminal: Terminal, total: int | None) -> Count:
    """Tokenize every line."""
    found, seen = Count(), set[int]()
    for item in items:
        found.n += 1
        terminal.progress("counting", found.n, total or 0)
        try:
            if item.error is not None:
                raise item.error
            assert item.request is not None
            made = m.prepare(**item.request)
            ids, most = made.prompt_ids, item.request["max_tokens"]
            made.close()
        except RequestError as e:
            found.n_errors += 1
            if len(found.errors) < 3:
                found.errors.append((item.line, e.what))
            continue
        found.tokens += len(ids)
        found.shared += _shared(ids, seen)
        found.longest = max(found.longest, (len(ids), item.line))
        room = m.context - len(ids)
        found.limit += room if most < 0 else min(most, room)
        if len(found.first) < TRIAL_LINES:
            found.first.append(item.request)
    terminal.clear()
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """What the trial showed."""

    n: int  # lines that were begun
    parallel: int
    length: float  # tokens of an answer, on average
    whole: bool  # every one of them came to its end
    read_s: float  # a token
    write_s: float


def trial(m: Model, requests: Sequence[dict[str, Any]], parallel: int | None) -> Pace:
    """Answer some lines for some seconds."""
    begin = time.perf_counter()
    timed = [r | {"max_time": TRIAL_S, "reuse": False} for r in requests]
    with m.batch(timed, ordered=False, parallel=parallel) as outs:
        at_once = outs.parallel
        done = [
            out
            for out in _some(outs, begin)
            if out.error is None and out.finish_reason != "interrupted"
        ]
    spent = time.perf_counter() - begin
    read = sum(o.usage.prompt for o in done)
    written = sum(o.usage.generated for o in done)
    reading = _reading(m, requests[0])
    read_s = min(reading, spent / max(read, 1))
    write_s = max(spent - read * read_s, 0.05 * spent) / max(written, 1)
    whole = all(o.finish_reason != "time" for o in done)
    return Pace(len(done), at_once, written / max(len(done), 1), whole, read_s, write_s)


def report(found: Count, pace: Pace | None, context: int) -> list[str]:
    """The lines of the answer."""
    rows = [("lines", f"{found.n:,}")]
    if found.n_errors:
        told = "; ".join(f"line {n:,}: {what}" for n, what in found.errors)
        more = "; …" if found.n_errors > len(found.errors) else ""
        rows.append(("errors", f"{found.n_errors:,} ({told}{more})"))
    longest, line = found.longest
    rows.append(("tokens", f"{found.tokens:,} to read"))
    if longest:
        rows.append(
            ("longest", f"{longest:,} tokens, line {line:,}; the context holds {context:,}")
        )
        part = 100 * found.shared / found.tokens
        rows.append(
            ("shared", f"about {found.shared:,} tokens ({part:.0f} %) are read once for many")
        )
    if pace is not None and pace.n:
        rows += _times(found, pace)
    return [f"{name:<9} {text}" for name, text in rows]


def _times(found: Count, pace: Pace) -> list[tuple[str, str]]:
    n = found.n - found.n_errors
    reading = (found.tokens - found.shared) * pace.read_s
    usual, most = reading + n * pace.length * pace.write_s, reading + found.limit * pace.write_s
    least = "" if pace.whole else "at least "
    written = f"{least}{pace.length:,.0f} tokens each in the trial, {found.limit:,} at most in all"
    speeds = f"{1 / pace.read_s:,.0f} tokens/s read, {1 / pace.write_s:,.0f} written"
    how = f"a trial of {lines(pace.n)}, {pace.parallel} at once: {speeds}"
    return [
        ("answers", written),
        ("time", f"about {least}{span(usual)}, {span(most)} at most (from {how})"),
    ]


def _some(outs: Any, begin: float) -> Iterator[Any]:
    """Answers until the time is up; `max_time` has ended those that run by then."""
    for out in outs:
        yield out
        if time.perf_counter() - begin > TRIAL_S:
            return


def _reading(m: Model, request: dict[str, Any]) -> float:
    """Seconds to read a token, from a prompt that is read and not answered."""
    out = m.complete(**request | {"max_tokens": 0, "reuse": False})
    return out.timings.prefill_s / max(out.usage.prompt, 1)


def _shared(ids: Sequence[int], seen: set[int]) -> int:
    """Tokens at the beginning that an earlier prompt had too; remembers this one's beginnings."""
    key, known, shared = 0, True, 0
    for at in range(GRAIN, len(ids), GRAIN):  # the last token is always read
        key = hash((key, *ids[at - GRAIN : at]))
        known = known and key in seen
        if known:
            shared = at
        elif len(seen) < REMEMBERED:
            seen.add(key)
        else:
            break
    return shared
