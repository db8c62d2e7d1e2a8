"""What `inspect` says about a model file, in words.

    describe(open_file("phi.gguf"))                  # text for a terminal, ends in a newline
    as_dict(open_file("phi.gguf"))                   # the same facts for `--json`

Text that comes from the file is escaped, so it cannot steer a terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gguf_runtime.errors import escape, show
from gguf_runtime.gguf.facts import facts as as_dict
from gguf_runtime.gguf.file import GGUFFile

__all__ = ["as_dict", "describe"]

LABEL = 14  # columns of the words on the left
VALUE = 120  # characters of a metadata value that `--kv` shows


def describe(
    file: GGUFFile,
    *,
    supported: Collection[str] | None = None,
    refusals: Sequence[str] = (),
    kv: bool = False,
    tensors: bool = False,
) -> str:
    """The facts of a file, one line each, then its tensors by type.

    Args:
        file: an open file.
        supported: names of the architectures that can be run; None leaves that question out.
        refusals: further reasons why the file cannot be run, from whoever knows architectures.
        kv: add all metadata.
        tensors: add the table of tensors.
    """
    f = as_dict(file, supported=supported, refusals=refusals, kv=kv, tensors=tensors)
    lines = [_title(f)]
    lines += [f"  {label:{LABEL}}{escape(text)}" for label, text in _facts(f)]
    if f["types"]:
        lines += ["", *_type_table(f)]
    if kv:
        lines += ["", f"metadata, {len(f['metadata']):,} keys", *_metadata(f)]
    if tensors:
        lines += ["", f"tensors, {f['n_tensors']:,}", *_tensors(f)]
    return "\n".join(lines) + "\n"


def _title(f: dict[str, Any]) -> str:
    name = f["parts"][0]
    what = [f["architecture"] or "no architecture named"]
    if f["n_params"]:
        what.append(f"{_short(f['n_params'])} parameters")
        what.append(f"{f['bits_per_weight']:.2f} bits per weight")
    return escape(f"{name}: {', '.join(what)}")


def _facts(f: dict[str, Any]) -> Iterator[tuple[str, str]]:
    order = "" if f["byte_order"] == "little" else ", big-endian"
    parts = f" in {len(f['parts']):,} parts" if len(f["parts"]) > 1 else ""
    size = f"{f['size_bytes']:,} bytes ({_mebibytes(f['size_bytes'])}){parts}"
    yield "file", f"GGUF version {f['version']}{order}, {size}"
    for key in ("name", "license"):
        if f["general"][key]:
            yield key, str(f["general"][key])
    if f["file_type"]:
        yield "type", f"mostly {f['file_type']}"
    if f["runnable"] is not None:
        yield "runs here", "yes" if f["runnable"] else "no"
    for reason in f["unsupported"]:
        yield "not supported", reason
    for problem in f["problems"]:
        yield "problem", problem
    if f["model"]:
        yield from _shape(f["model"])
    if f["rope"]:
        yield "rope", _rope(f["rope"], f["model"])
    if f["tokenizer"]:
        yield from _tokenizer(f["tokenizer"])
    for notice in f["notices"]:
        yield "notice", notice["message"]


def _shape(m: dict[str, Any]) -> Iterator[tuple[str, str]]:
    ff = f", feed-forward {_span(m['n_ff'])}" if m["n_ff"] else ""
    yield "layers", f"{m['n_layer']:,} of width {m['n_embd']:,}{ff}"
    if m["n_head"]:
        dims = f"{m['head_dim']:,}"
        if m["head_dim_v"] != m["head_dim"]:
            dims += f" (values {m['head_dim_v']:,})"
        kv = f"{_span(m['n_head_kv'])} for keys and values"
        yield "heads", f"{_span(m['n_head'])} of {dims} numbers, {kv}"
    if m["n_expert"]:
        yield "experts", f"{m['n_expert']:,}, {_span(m['n_expert_used'])} used per token"
    if m["window"]:
        yield "window", f"{m['window']:,} positions in the layers that have one"
    yield "context", f"trained for {m['n_ctx']:,} tokens"


def _rope(r: dict[str, Any], m: dict[str, Any]) -> str:
    words = [f"base {_number(r['base'])}"]
    if m["window"]:
        words[0] += f" ({_number(r['base_window'])} in window layers)"
    if r["factors"]:
        words.append(f"each frequency divided by {' or '.join(r['factors'])}")
    elif r["scaling"] == "none":
        words.append("no scaling (scale 1)")
    if r["scaling"] != "none":
        scaling = f"{r['scaling']} scaling by {_number(r['factor'])}"
        if r["scaling"] != "linear":
            scaling += f" from {r['n_ctx']:,} positions"
        if m["window"] and not r["window_scaled"]:
            scaling += " (none in window layers)"
        words.append(scaling)
    words.append(f"{r['n_dims']:,} of {m['head_dim']:,} dimensions")
    words.append(f"trained length {m['n_ctx']:,}")
    for key, value in r.items():
        if key.endswith(("_factor", "_fast", "_slow", "_multiplier")) and value is not None:
            words.append(f"{key.replace('_', ' ')} {_number(value)}")
    return ", ".join(words)


def _tokenizer(t: dict[str, Any]) -> Iterator[tuple[str, str]]:
    pre = f", pre-tokenizer {t['pre']}" if t["pre"] else ""
    merges = f", {t['n_merges']:,} merges" if t["n_merges"] else ""
    yield "tokenizer", f"{t['model']}{pre}: {t['n_tokens']:,} tokens{merges}"
    special = [
        f"{name} {t[f'{name}_id']:,} {show(piece, 40)}" for name, piece in t["pieces"].items()
    ]
    added = [n for n in ("bos", "eos") if t[f"add_{n}"]]
    if special:
        special.append(f"{' and '.join(added)} added" if added else "none added")
        yield "special", ", ".join(special)
    length = t["template_characters"]
    yield "chat template", f"{length:,} characters" if length is not None else "none"


def _type_table(f: dict[str, Any]) -> list[str]:
    total = sum(row["size_bytes"] for row in f["types"]) or 1
    rows = [("type", "tensors", "weights", "bytes", "share", "bits/weight")]
    for row in f["types"]:
        bits = row["bits_per_weight"]
        if bits is None:  # at most: the bytes up to the next tensor
            bits = 8 * row["size_bytes"] / row["weights"] if row["weights"] else 0.0
        rows.append(
            (
                row["type"],
                f"{row['tensors']:,}",
                f"{row['weights']:,}",
                f"{row['size_bytes']:,}",
                f"{100 * row['size_bytes'] / total:.1f} %",
                f"{bits:.4g}",
            )
        )
    return _table(rows)


def _metadata(f: dict[str, Any]) -> Iterator[str]:
    for key, entry in f["metadata"].items():
        kind = entry["kind"]
        if "length" in entry:
            kind += f" of {entry['length']:,}"
        values = entry["value"]
        text = show(values, VALUE)
        if isinstance(values, list):
            text = ", ".join(show(v, 40) for v in values[:16])
            text = text[:VALUE] + ("…" if len(text) > VALUE or entry["length"] > 16 else "")
        elif isinstance(values, int) and not isinstance(values, bool):
            text = str(values)
        yield escape(f"  {key} ({kind}) = {text}")


def _tensors(f: dict[str, Any]) -> list[str]:
    rows = [("name", "type", "shape", "offset", "bytes")]
    for t in f["tensors"]:
        place = f"{t['offset']:,}" if len(f["parts"]) == 1 else f"{t['part']}: {t['offset']:,}"
        shape = " x ".join(f"{n:,}" for n in t["shape"])
        rows.append((escape(t["name"]), t["type"], shape, place, f"{t['size_bytes']:,}"))
    return _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Left-aligned first column, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{c:>{w}}" for c, w in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(["", f"{first:{widths[0]}}", *cells]).rstrip())
    return lines


def _span(value: int | list[int] | None) -> str:
    if isinstance(value, list):
        return f"{min(value):,} to {max(value):,}"
    return f"{value:,}" if value is not None else "?"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"


def _short(n: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n >= size:
            return f"{n / size:.4g} {unit}"
    return str(n)


def _mebibytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
