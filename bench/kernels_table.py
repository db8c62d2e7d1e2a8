"""Records of `kernels.py` as tables, and their place in docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import record as records
import roofline

from quant import cpu
from quant.roofs import PEAKS
from quant.types import get

PEAK_NAMES = {"dot": "dot product", "dot8": "dot product of 8-bit codes", "fma": "float32 fma"}


def markdown(r: dict[str, Any]) -> str:
    """Machine and limits, shares of them, and the price of a16."""
    limits = ", ".join(f"{PEAK_NAMES[kind]} {shown(r[kind])} GMAC/s" for kind in PEAKS)
    shape = r["shape"]
    return "\n".join(
        [
            records.system_line(r),
            f"Limits of {r['threads']} threads in the same run: read {shown(r['read'])} GB/s, {limits}.",
            f"GEMV: {r['size_bytes'] >> 20:,} MB of weights, one column. GEMM: {shape['rows']:,} x"
            f" {shape['k']:,} times {shape['columns']} columns. Medians (range) of"
            f" {len(r['read'])} rounds.",
            "",
            *shares(r),
            "",
            "The price of a16, speed relative to a8:",
            "",
            *prices(r),
        ]
    )


def shares(r: dict[str, Any]) -> list[str]:
    """Each type's GEMV, GEMM and packing; shares are medians over rounds."""
    lines = [
        "| type | activations | GEMV, GB/s | of read | GEMM, GMAC/s | of peak | peak | pack, GB/s |",
        "|---|---|--:|--:|--:|--:|---|--:|",
    ]
    for name, fmt, kinds in rows(r):
        decode, prefill = kinds[f"{fmt} decode"], kinds[f"{fmt} prefill"]
        peak = get(name).peak
        pack = shown(kinds["pack"]) if fmt != "a16" else ""
        lines.append(
            f"| {name} | {fmt} | {shown(decode)} | {percent(decode, r['read'])} |"
            f" {shown(prefill)} | {percent(prefill, r[peak])} | {peak} | {pack} |"
        )
    return lines


def prices(r: dict[str, Any]) -> list[str]:
    """What the finer activations leave of the speed."""
    lines = ["| type | GEMV | GEMM |", "|---|--:|--:|"]
    for name, fmt, kinds in rows(r):
        if fmt == "a16":
            one, many = (
                percent(kinds[f"a16 {phase}"], kinds[f"a8 {phase}"])
                for phase in ("decode", "prefill")
            )
            lines.append(f"| {name} | {one} | {many} |")
    return lines


def rows(r: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    """(type, activations, figures of the type)."""
    for name, kinds in r["types"].items():
        for fmt in dict.fromkeys(what.split()[0] for what in kinds if " " in what):
            yield name, fmt, kinds


def shown(values: list[float]) -> str:
    """Median and range in thousands of millions."""
    low, mid, high = (
        f"{x / 1e9:.3g}" for x in (min(values), statistics.median(values), max(values))
    )
    return f"{mid} ({low}-{high})"


def percent(values: list[float], limits: list[float]) -> str:
    """Median of the shares of all rounds."""
    return f"{100 * statistics.median(x / y for x, y in zip(values, limits, strict=True)):.0f} %"


def write(r: dict[str, Any]) -> None:
    """Tables and picture into docs/; kernels of a lower instruction set have a block of their own."""
    own = r["isa"] == cpu.isa(override="")
    suffix = "" if own else f"-{r['isa']}"
    picture = records.PERFORMANCE.with_name(f"roofline{suffix}.svg")
    block = f"![Roofline of the matmul kernels, {r['isa']}]({picture.name})\n\n{markdown(r)}"
    if records.show(records.PERFORMANCE, f"kernels{suffix}", block):
        picture.write_text(roofline.svg(r), encoding="utf-8")
