"""Records of `peers.py` as Markdown."""

from __future__ import annotations

import statistics
from typing import Any

import record as records
import shapes

from quant import cpu

OWN = "gguf-runtime"
TITLES = {"smollm2": "SmolLM2", "gemma-3-270m": "Gemma"}  # of the tables in docs/fidelity.md
COMPARED = ("llama.cpp, one batch", "ik_llama.cpp", "int8, f16 cache", "int16, f16 cache")
WRONG = (
    "ik_llama.cpp computes SmolLM2's matrices wrongly when it reads 32 or more tokens at once (mean KL 1.6 from exact"
    " arithmetic, one token at a time is right): its prefill speed there is that of a wrong result."
)


def block_of(r: dict[str, Any]) -> str:
    """The block of a page that a record belongs to: kernels and kind of models tell them apart."""
    isa = "" if r["isa"] == cpu.isa(override="") else f"-{r['isa']}"
    large = "-1b" if shapes.is_shape(next(iter(r["models"]))) else ""
    return f"peers{isa}{large}"


def title(name: str, facts: dict[str, Any]) -> str:
    """A model as tables call it."""
    kind = facts["file"].removesuffix(".gguf")
    return f"1B shape, {kind}" if shapes.is_shape(name) else str(facts["file"])


def markdown(record: dict[str, Any]) -> str:
    """The whole block: system, one table per model, start, notes."""
    parts = [system(record)]
    parts += [
        f"**{title(name, facts)}**, tokens per second\n\n{speeds(record, name)}"
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
    return "\n".join(
        [
            records.system_line(r),
            f"Measured in the same run: {measured}.",
            "Peers: " + (", ".join(peers(r)) or "none") + ".",
        ]
    )


def peers(r: dict[str, Any]) -> list[str]:
    """Their versions, and the widest instructions that they were built for."""
    out = []
    for name, e in r["engines"].items():
        if not name.startswith(OWN):
            wide = next(
                (x for x in ("AVX512_VNNI", "AVX512", "AVX2") if f"{x} = 1" in e["build"]), ""
            )
            out.append(f"{name} ({e['version']}{', built for ' + wide if wide else ''})")
    return out


def speeds(r: dict[str, Any], name: str) -> str:
    peers = [p for p in ("llama.cpp", "ik_llama.cpp") if p in r["engines"]]
    others = [e for e in r["engines"] if e.startswith(OWN) and e != OWN]
    head = ["threads", "depth", "", OWN, "of memory"]
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
            row.append(of_memory(c, mine["median"]) if what == "decode" else "")
            for p in peers:
                theirs = best(c, p, what)
                row += [shown(theirs), f"{mine['median'] / theirs['median']:.2f}" if theirs else ""]
            row += [shown(best(c, o, what)) for o in others]
            row.append(" / ".join(cpu_share(c, e) for e in (OWN, *peers)))
            lines.append(row)
    return "\n".join("| " + " | ".join(x) + " |" for x in lines)


def of_memory(c: dict[str, Any], tps: float) -> str:
    """Bytes that decoding reads, as a share of the best reading pass between the turns."""
    if "token_bytes" not in c:
        return ""
    return f"{100 * tps * c['token_bytes'] / c['bandwidth']:.0f} %"


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
        ["model", "engine", "wall s, median (range)", "CPU s, best", "peak memory, MB"],
        ["---", "---", "--:", "--:", "--:"],
    ]
    for s in r["start"]:
        wall = s["wall_s"]
        lines.append(
            [
                title(s["model"], r["models"][s["model"]]),
                s["engine"],
                f"{statistics.median(wall):.2f} ({min(wall):.2f}-{max(wall):.2f})",
                f"{min(s['cpu_s']):.2f}",
                f"{s['peak_bytes'] / 1e6:,.0f}{_of_weights(r, s)}" if "peak_bytes" in s else "",
            ]
        )
    text = "\n".join("| " + " | ".join(x) + " |" for x in lines)
    loads = [
        f"{title(s['model'], facts)} {facts['size_bytes'] / min(s['load_s']) / 1e9:.1f} GB/s"
        for s in r["start"]
        if "load_s" in s and s["engine"] == OWN
        for facts in (r["models"][s["model"]],)
    ]
    if loads:
        text += (
            f"\n\nLoading by {OWN}, bytes of the file per second, best start: {', '.join(loads)}."
        )
    return text


def _of_weights(r: dict[str, Any], s: dict[str, Any]) -> str:
    """Peak memory over packed weights, of this engine."""
    packed = [
        e["weights_bytes"]
        for c in r["cells"]
        for e in c["engines"].values()
        if c["model"] == s["model"] and e["name"] == s["engine"] and "weights_bytes" in e
    ]
    return f" ({s['peak_bytes'] / packed[0]:.2f} of the packed weights)" if packed else ""


def divergences(r: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    """By model (engine, mean KL, top-1) of every engine's defaults and our int16, as docs/fidelity.md has them."""
    page = records.ROOT / "docs" / "fidelity.md"
    found: dict[str, list[tuple[str, str, str]]] = {}
    model = None
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        cells = [c.strip(" *") for c in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4:
            model = None
        elif cells[1] == "mean KL":
            model = next((n for n, t in TITLES.items() if cells[0].startswith(t)), None)
        elif model in r["models"] and cells[0].startswith(COMPARED):
            found.setdefault(str(model), []).append((cells[0], cells[1], cells[3]))
    return found


def fidelity(r: dict[str, Any]) -> str:
    """The same as a table; empty where nothing is known of these models."""
    lines = [["model", "engine", "mean KL", "top-1"], ["---", "---", "--:", "--:"]]
    for name, rows in divergences(r).items():
        lines += [[r["models"][name]["file"], *row] for row in rows]
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
    if any("token_bytes" in c for c in r["cells"]):
        lines.append(
            "*Of memory*: packed weights and cache that a token of decode reads, over the best reading pass of the same"
            " threads between the turns; above 100 % where caches hold a part of them."
        )
    if any(map(shapes.is_shape, r["models"])):
        lines.append(
            "The 1B shape has random weights; *start* is the whole program up to one token."
        )
    if "ik_llama.cpp" in r["engines"] and "smollm2" in r["models"]:
        lines.append(WRONG)
    return "\n".join(lines)
