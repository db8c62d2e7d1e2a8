"""Profiles in words: the bottleneck in a sentence, rows in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gguf_runtime.engine.profile import MEMORY, Kind, Phase

if TYPE_CHECKING:
    from quant.roofs import Limits

PEAK_NAMES = {"dot": "integer peak", "dot8": "peak of 8-bit codes", "fma": "float peak"}
NEAR, BEYOND = 0.85, 1.02  # of memory's speed over a whole phase: it is the limit; it is not
ROW_HEAD = ("row", "weights", "rows", "ms", "share", "GB/s", "GMAC/s", "of limit", "limit")


def bottleneck(phase: Phase, limits: Limits, seconds: float | None = None) -> str:
    """One sentence: what keeps the phase from being faster.

    seconds: of the same steps with all that is not a row; those of the rows unless given.
    """
    seconds = seconds or phase.seconds
    speed = f"the measured {limits.read / 1e9:.0f} GB/s"
    if phase.name == "answer":
        share = phase.n_bytes / limits.read / seconds
        head = f"decode: {_percent(share)} of {speed}"
        if share > BEYOND:
            return f"{head}: caches hold a part of what a token reads"
        if share >= NEAR:
            return f"{head}; memory is the limit"
        slow = max(phase.kinds, key=lambda k: k.seconds - k.limit_s)
        outside = seconds - phase.seconds
        if outside > slow.seconds - slow.limit_s:
            return f"{head}; {_percent(outside / seconds)} of the time is spent outside the rows"
        return f"{head}; most is lost in {_named(slow)}, {_reached(slow, seconds, speed)}"
    slow = phase.kinds[0]
    return f"prefill: {_named(slow)}, {_reached(slow, seconds, speed)}"


def _named(k: Kind) -> str:
    """ "matmul of ffn_down, Q4_K", "attention", "norm"."""
    if not k.weights:
        return k.op if k.op in k.name else f"{k.op} ({k.name})"
    word = "gated matmul" if k.op == "gate" else "matmul"
    return f"{word} of {k.name}, {k.weights.replace(' ', ' and ')}"


def _reached(k: Kind, seconds: float, speed: str) -> str:
    part = f"{_percent(k.seconds / seconds)} of the time"
    if k.of_limit is None:
        return part
    return f"{_percent(k.of_limit)} of {speed if k.bound == MEMORY else f'the {PEAK_NAMES[k.bound]}'}, {part}"


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %"


def rows_table(phase: Phase, seconds: float | None = None) -> list[tuple[str, ...]]:
    """Cells: row, weights, rows, ms, share, GB/s, GMAC/s, share of the limit, the limit."""
    total = seconds or phase.seconds
    out = []
    for k in phase.kinds:
        cells = [k.name, k.weights, str(k.rows), f"{k.seconds * 1e3:,.2f}"]
        cells.append(f"{100 * k.seconds / total:.1f} %")
        if k.of_limit is None:
            cells += ["", "", "", ""]
        else:
            cells += [f"{k.n_bytes / k.seconds / 1e9:.1f}", f"{k.n_macs / k.seconds / 1e9:.1f}"]
            cells += [_percent(k.of_limit), k.bound]
        out.append(tuple(cells))
    if total > phase.seconds:
        rest = total - phase.seconds
        share = f"{100 * rest / total:.1f} %"
        out.append(("(outside the rows)", "", "", f"{rest * 1e3:,.2f}", share, "", "", "", ""))
    return out


def limits_line(limits: Limits) -> str:
    """The limits in one line."""
    peaks = ", ".join(f"{PEAK_NAMES[kind]} {x / 1e9:,.0f}" for kind, x in limits.peaks.items())
    return f"measured limits: memory {limits.read / 1e9:.1f} GB/s, GMAC/s: {peaks}"


def table(found: Sequence[Phase], limits: Limits) -> str:
    """Lines of text for a terminal."""
    lines = [limits_line(limits)]
    for phase in found:
        lines.append(
            f"{phase.name}: {phase.tokens:,} tokens in {phase.steps:,} steps,"
            f" {phase.seconds * 1e3:,.1f} ms"
        )
        lines += ["  " + line for line in aligned([ROW_HEAD, *rows_table(phase)])]
        lines.append("  " + bottleneck(phase, limits))
    return "\n".join(lines)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of equal width, names to the left and numbers to the right."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    words = {i for i, cell in enumerate(ROW_HEAD) if cell in ("row", "weights", "limit")}
    return [
        "  ".join(
            c.ljust(w) if i in words else c.rjust(w)
            for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    ]
