"""A roofline picture of a record of `kernels.py`, as SVG: readable on light and dark pages.

Both axes are logarithmic: multiply-adds per byte moved, and multiply-adds per second. Memory is the
slope, each peak in registers a level; a point is a type's GEMV (circle) or GEMM (square).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from quant.calls import act_bytes
from quant.roofs import PEAKS
from quant.types import Type, get

WIDTH, HEIGHT = 760, 474
LEFT, RIGHT, TOP, BOTTOM = 64, 650, 34, 410  # of the plot
LINE = 12.5  # between labels
SAME = 0.96  # of the highest level: not worth a line of its own
NAMES = {"dot": "int8 dot", "dot8": "8-bit codes", "fma": "float32 fma"}
STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 11px; fill: #24292f; }
  .title { font-size: 13px; font-weight: 600; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .roof { stroke: #24292f; stroke-width: 1.8; fill: none; }
  .level { stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }
  .lead { stroke: #8c959f; stroke-width: 0.6; fill: none; }
  .gemv { fill: #0969da; }
  .gemm { fill: #cf5c00; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .grid { stroke: #30363d; }
    .roof { stroke: #e6edf3; }
    .level { stroke: #8b949e; }
    .lead { stroke: #6e7681; }
    .gemv { fill: #58a6ff; }
    .gemm { fill: #f0883e; }
  }
"""


class Point(NamedTuple):
    """A measured kernel: multiply-adds per byte and, in thousands of millions, per second."""

    label: str
    kind: str  # gemv or gemm
    x: float
    y: float


class Axes(NamedTuple):
    """Logarithmic axes over ranges of powers."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (RIGHT - LEFT) * _part(x, self.x),
            BOTTOM - (BOTTOM - TOP) * _part(y, self.y),
        )


def _part(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def points(r: dict[str, Any]) -> list[Point]:
    """Medians of every type with its usual activations."""
    shape, found = r["shape"], []
    for name, kinds in r["types"].items():
        t = get(name)
        fmt = "f32" if t.kind == "float" else "a8"
        k = shape["k"]
        one = k / t.row_bytes(k)
        read = statistics.median(kinds[f"{fmt} decode"]) / 1e9
        found.append(Point(name, "gemv", one, read * one))
        many = shape["rows"] * k * shape["columns"] / moved(t, fmt, **shape)
        found.append(Point(name, "gemm", many, statistics.median(kinds[f"{fmt} prefill"]) / 1e9))
    return found


def moved(t: Type, fmt: str, k: int, rows: int, columns: int) -> int:
    """Bytes of weights, activations and results of a GEMM, each once."""
    x = columns * k * 4 if fmt == "f32" else act_bytes(columns, k, fmt)
    return rows * t.row_bytes(k) + x + columns * rows * 4


def svg(r: dict[str, Any]) -> str:
    """The whole picture."""
    found = points(r)
    read = statistics.median(r["read"]) / 1e9
    peaks = {kind: statistics.median(r[kind]) / 1e9 for kind in PEAKS}
    used = {get(name).peak for name in r["types"]}
    top = max(peaks.values())
    lowest = min(p.y for p in found)
    axes = Axes((0.18, 600.0), (_power(lowest / 1.1), top * 1.7))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>Roofline of the matmul kernels, {r['isa']}</title>",
        f"<style>{STYLE}</style>",
        _text(LEFT, 18, f"{r['isa']}, {r['threads']} threads, {r['date'][:10]}", "title"),
        *_grid(axes),
        *_roofs(axes, read, {kind: peaks[kind] for kind in PEAKS if kind in used}),
        *_labelled(axes, [p for p in found if p.kind == "gemv"], axes.at(5.5, 1.0)[0]),
        *_labelled(axes, [p for p in found if p.kind == "gemm"], RIGHT + 12.0),
        *_legend(r),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _power(x: float) -> float:
    """The next 1, 2 or 5 times a power of ten below x."""
    base = 10.0 ** math.floor(math.log10(x))
    return max(m * base for m in (1, 2, 5) if m * base <= x)


def _ticks(ends: tuple[float, float]) -> list[float]:
    first, last = math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1]))
    found = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
    return [x for x in found if ends[0] * 1.001 < x < ends[1] / 1.001]


def _grid(axes: Axes) -> list[str]:
    out = []
    for x in _ticks(axes.x):
        at, _ = axes.at(x, axes.y[0])
        out += [
            _line("grid", (at, TOP), (at, BOTTOM)),
            _text(at, BOTTOM + 16, f"{x:g}", "", "middle"),
        ]
    for y in _ticks(axes.y):
        _, at = axes.at(axes.x[0], y)
        out += [
            _line("grid", (LEFT, at), (RIGHT, at)),
            _text(LEFT - 6, at + 4, f"{y:g}", "", "end"),
        ]
    middle = (LEFT + RIGHT) / 2
    out.append(_text(middle, BOTTOM + 34, "multiply-adds per byte moved", "", "middle"))
    turn = f' transform="rotate(-90 16 {(TOP + BOTTOM) / 2:g})"'
    out.append(_text(16, (TOP + BOTTOM) / 2, "GMAC/s", "", "middle", turn))
    return out


def _roofs(axes: Axes, read: float, peaks: dict[str, float]) -> list[str]:
    """The slope of memory up to the highest level, that level, and the others as dashes."""
    high = max(peaks.values())
    start = max(axes.x[0], axes.y[0] / read)
    corner, end = axes.at(high / read, high), axes.at(axes.x[1], high)
    out = [_line("roof", axes.at(start, start * read), corner, end)]
    x, y = axes.at(1.3, 1.3 * read)
    angle = math.degrees(math.atan2(corner[1] - y, corner[0] - x))
    turn = f' transform="rotate({angle:.1f} {x:.1f} {y - 7:.1f})"'
    out.append(_text(x, y - 7, f"memory {read:.1f} GB/s", "", "start", turn))
    for kind, peak in peaks.items():
        if SAME * high < peak < high:
            continue
        at = axes.at(peak / read, peak)
        if peak < high:
            out.append(_line("level", at, axes.at(axes.x[1], peak)))
        out.append(_text(at[0] + 30, at[1] - 6, f"{NAMES[kind]}, {peak:,.0f} GMAC/s"))
    return out


def _labelled(axes: Axes, found: Sequence[Point], column: float) -> list[str]:
    """Points, and their names in a column beside them: sorted, apart, with thin lines."""
    places = sorted(((*axes.at(p.x, p.y), p) for p in found), key=lambda place: place[1])
    out: list[str] = []
    rows = _apart([y for _, y, _ in places])
    for (x, y, p), row in zip(places, rows, strict=True):
        out.append(_line("lead", (x, y), (column - 3, row)))
        out.append(_text(column, row + 4, f"{p.label} {p.y:,.0f}"))
        if p.kind == "gemv":
            out.append(f'<circle class="gemv" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        else:
            out.append(
                f'<rect class="gemm" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
            )
    return out


def _apart(ys: Sequence[float]) -> list[float]:
    """Ascending places moved so that neighbours are a line apart, around where they were."""
    groups: list[list[float]] = []  # [sum of wanted middles, count]
    for y in ys:
        groups.append([y, 1.0])
        while len(groups) > 1:
            (a, n), (b, m) = groups[-2], groups[-1]
            if b / m - a / n >= LINE * (n + m) / 2:
                break
            groups[-2:] = [[a + b, n + m]]
    out: list[float] = []
    for total, n in groups:
        first = total / n - LINE * (n - 1) / 2
        out += [first + LINE * k for k in range(int(n))]
    return out


def _legend(r: dict[str, Any]) -> list[str]:
    y = HEIGHT - 8
    columns = r["shape"]["columns"]
    return [
        f'<circle class="gemv" cx="{LEFT + 6}" cy="{y - 4}" r="4"/>',
        _text(LEFT + 16, y, "GEMV, one column"),
        f'<rect class="gemm" x="{LEFT + 136}" y="{y - 7.5}" width="7" height="7"/>',
        _text(LEFT + 150, y, f"GEMM, {columns} columns"),
        _text(RIGHT, y, "a8 activations; float types f32", "", "end"),
    ]


def _line(kind: str, *at: tuple[float, float]) -> str:
    return f'<path class="{kind}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in at)}"/>'


def _text(
    x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = ""
) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>'
