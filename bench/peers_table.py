"""Records of `peers.py` as Markdown, and the blocks of pages that hold it."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
OWN = "gguf-runtime"
TITLES = {"smollm2": "SmolLM2", "gemma-3-270m": "Gemma"}  # of the tables in docs/fidelity.md
COMPARED = ("llama.cpp, one batch", "ik_llama.cpp", "int8, f16 cache", "int16, f16 cache")
WRONG = (
    "ik_llama.cpp computes SmolLM2's matrices wrongly when it reads 32 or more tokens at once (mean KL 1.6 from exact"
    " arithmetic, one token at a time is right): its prefill speed there is that of a wrong result."
)


def markdown(record: dict[str, Any]) -> str:
    """The whole block: system, one table per model, start, notes."""
    parts = [system(record)]
    parts += [
        f"**{facts['file']}**, tokens per second\n\n{speeds(record, name)}"
        for name, facts in record["models"].items()
    ]
    if record["start"]:
        parts.append(f"**Start to first token**, page cache warm\n\n{starts(record)}")
    divergence = fidelity(record)
    if divergence:
        parts.append(
            f"**Distance from exact arithmetic** (docs/fidelity.md); int8 is the default\n\n{divergence}"
        )
    return "\n\n".join([*parts, notes(record)]) + "\n"


def system(r: dict[str, Any]) -> str:
    limits: dict[int, list[tuple[float, float]]] = {}
    for c in r["cells"]:
        limits.setdefault(c["threads"], []).append((c["bandwidth"], c["dot_peak"]))
    measured = "; ".join(
        f"{n} thread{'s' if n > 1 else ''}: memory {max(x[0] for x in v) / 1e9:.1f} GB/s,"
        f" int8 dot products {max(x[1] for x in v) / 1e9:,.0f} GMAC/s"
        for n, v in sorted(limits.items())
    )
    dirty = " with changes" if r["dirty"] else ""
    engines = ", ".join(
        f"{name} ({e['version']})" for name, e in r["engines"].items() if not name.startswith(OWN)
    )
    return (
        f"{r['date'][:10]}, commit {r['commit']}{dirty}. {r['cpu']}, {r['cores']} cores,"
        f" {r['cache_bytes'] >> 20} MB last-level cache, kernels {r['isa']}, {r['system']}, Python {r['python']}.\n"
        f"Measured in the same run: {measured}.\n"
        f"Peers, built for this machine: {engines or 'none'}."
    )


def speeds(r: dict[str, Any], name: str) -> str:
    peers = [p for p in ("llama.cpp", "ik_llama.cpp") if p in r["engines"]]
    others = [e for e in r["engines"] if e.startswith(OWN) and e != OWN]
    head = ["threads", "depth", "", OWN]
    for p in peers:
        head += [p, "ratio"]
    head += [*others, "cpu"]
    lines = [head, ["--:"] * 2 + ["---"] + ["--:"] * (len(head) - 3)]
    cells = [c for c in r["cells"] if c["model"] == name]
    for c in sorted(cells, key=lambda c: (c["threads"], c["depth"])):
        for what in sorted(c["engines"][OWN]["tps"], key=phase):
            mine = best(c, OWN, what)
            assert mine is not None
            row = [str(c["threads"]), f"{c['depth']:,}", what, shown(mine)]
            for p in peers:
                theirs = best(c, p, what)
                row += [shown(theirs), f"{mine['median'] / theirs['median']:.2f}" if theirs else ""]
            row += [shown(best(c, o, what)) for o in others]
            row.append(" / ".join(cpu_share(c, e) for e in (OWN, *peers)))
            lines.append(row)
    return "\n".join("| " + " | ".join(x) + " |" for x in lines)


def phase(what: str) -> tuple[bool, int]:
    """Prefills by length, then decode."""
    return what == "decode", 0 if what == "decode" else int(what.split()[1])


def cpu_share(c: dict[str, Any], name: str) -> str:
    shares = [s for e in c["engines"].values() if e["name"] == name for s in e["cpu_share"]]
    return f"{statistics.median(shares):.2f}"


def best(c: dict[str, Any], name: str, what: str) -> dict[str, Any] | None:
    """Median and range of the engine's better setting."""
    found = [
        {
            "median": statistics.median(e["tps"][what]),
            "low": min(e["tps"][what]),
            "high": max(e["tps"][what]),
            "flash": e["flash"],
        }
        for e in c["engines"].values()
        if e["name"] == name and what in e["tps"]
    ]
    return max(found, key=lambda x: x["median"]) if found else None


def shown(x: dict[str, Any] | None) -> str:
    if x is None:
        return ""
    digits = 0 if x["median"] >= 200 else 1
    off = " †" if x["flash"] == "off" else ""
    return f"{x['median']:,.{digits}f} ({x['low']:,.{digits}f}-{x['high']:,.{digits}f}){off}"


def starts(r: dict[str, Any]) -> str:
    lines = [
        ["model", "engine", "wall s, median (range)", "CPU s, best"],
        ["---", "---", "--:", "--:"],
    ]
    for s in r["start"]:
        wall = s["wall_s"]
        lines.append(
            [
                r["models"][s["model"]]["file"],
                s["engine"],
                f"{statistics.median(wall):.2f} ({min(wall):.2f}-{max(wall):.2f})",
                f"{min(s['cpu_s']):.2f}",
            ]
        )
    return "\n".join("| " + " | ".join(x) + " |" for x in lines)


def fidelity(r: dict[str, Any]) -> str:
    """Defaults of every engine and our int16, as docs/fidelity.md has them."""
    page = ROOT / "docs" / "fidelity.md"
    if not page.exists():
        return ""
    lines = [["model", "engine", "mean KL", "top-1"], ["---", "---", "--:", "--:"]]
    model = None
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [c.strip(" *") for c in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4:
            model = None
        elif cells[1] == "mean KL":
            model = next((n for n, t in TITLES.items() if cells[0].startswith(t)), None)
        elif model in r["models"] and cells[0].startswith(COMPARED):
            lines.append([r["models"][model]["file"], cells[0], cells[1], cells[3]])
    return "\n".join("| " + " | ".join(x) + " |" for x in lines) if len(lines) > 2 else ""


def notes(r: dict[str, Any]) -> str:
    s = r["settings"]
    lines = [
        f"Medians (range) of {s['reps']} turns, engines one after the other in each round, same ids, f16 cache."
        f" *Prefill n*: n tokens in one call at that depth, *decode*: {s['decode']} single tokens after the first of"
        " these prompts. *cpu*: CPU time over wall time and threads of each engine in this order; where all are"
        " below 0.98 other processes took a part.",
        "Peers ran with and without flash attention; the better median counts († without). llama.cpp repacks at load,"
        " ik_llama.cpp does not (their defaults; its repacking gave Gemma's decode 7 % and took 13 % of the prefill);"
        " llama.cpp's window layers keep their window only.",
    ]
    if r["scheduling"] != "normal":
        lines.append(
            f"All engines ran with {r['scheduling']} priority on a machine that others used, too; the system then keeps"
            " up to 5 % of each core for them."
        )
    if any(e.startswith(f"{OWN} (avx2") for e in r["engines"]):
        lines.append(
            "The AVX2 column is this engine with AVX2 kernels on the same CPU; the peers are native builds and use"
            " AVX-512, so it is no comparison on a machine with AVX2 only."
        )
    if "ik_llama.cpp" in r["engines"] and "smollm2" in r["models"]:
        lines.append(WRONG)
    return "\n".join(lines)


def write(page: Path, record: dict[str, Any]) -> None:
    """Fill the block of a page; docs/performance.md gets one where it has none."""
    if not page.exists():
        return
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text:
        if page.name != "performance.md":
            return
        text = f"{text.rstrip()}\n\n## Beside the C++ engines\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    page.write_text(f"{before}{BEGIN}\n{markdown(record)}{END}{after}", encoding="utf-8")
