"""From the GGUF files of a repository to models one can choose: by quantization or by file name.

Parts of a split model are one choice; projectors, adapters and importance matrices are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gguf_runtime.errors import ModelError, show
from gguf_runtime.hub.near import suggestion
from gguf_runtime.hub.resolve import size

DEFAULT = "Q4_K_M"
SHOWN = 12

_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q[1-9]_[A-Z0-9_]*[A-Z0-9]|I?Q8|TQ[12]_0|BF16|F16|FP16|F32|FP32|"
    r"MXFP4(?:_MOE)?|NVFP4))(?=[-._/]|$)",
    re.IGNORECASE,
)
_PART = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_NO_MODEL = re.compile(r"(^|[-._/])(mmproj|imatrix|lora|adapter)([-._/]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Choice:
    """One model of a repository.

    label: the quantization in its name, "" where it has none. files: all parts, in order; of a
    model with `missing` parts those that are there.
    """

    label: str
    files: tuple[str, ...]
    size_bytes: int
    missing: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The file that stands for the model."""
        return self.files[0]


def choices(files: Mapping[str, int]) -> list[Choice]:
    """The models among files (name in the repository: bytes), the smallest first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(files):
        if not name.lower().endswith(".gguf") or _NO_MODEL.search(name):
            continue
        part = _PART.fullmatch(name)
        groups.setdefault(f"{part['stem']}\n{part['count']}" if part else name, []).append(name)
    found = []
    for names in groups.values():
        total = sum(files[n] for n in names)
        found.append(Choice(label(names[0]), tuple(names), total, _missing(names)))
    return sorted(found, key=lambda c: (c.size_bytes, c.file))


def label(file: str) -> str:
    """The quantization that a file's name tells, in capitals; "" where it tells none."""
    part = _PART.fullmatch(file)
    found = _QUANT.findall(part["stem"] if part else file.removesuffix(".gguf"))
    return str(found[-1]).upper() if found else ""


def choose(found: list[Choice], want: str | None, repo: str) -> Choice:
    """The one that is meant; ModelError with the choices and their sizes where that is open."""
    if not found:
        raise ModelError(
            "no GGUF model in this repository",
            where=f"hf:{repo}",
            hint="look for one whose name ends in -GGUF",
        )
    if want is None:
        fitting = [c for c in found if c.label == DEFAULT] or (found if len(found) == 1 else [])
        what = f"no {DEFAULT} here, and several others"
    else:
        fitting = [c for c in found if want in _names(c)]
        fitting = fitting or [c for c in found if c.label == want.upper()]
        what = f"no model {show(want)} here"
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        what, found = f"{len(fitting):,} models of that quantization", fitting
    near = suggestion(want or "", [n for c in found for n in (c.label, c.file) if n])
    first = near or name_of(found[0], found)
    listed = ", ".join(f"{name_of(c, found)} ({size(c.size_bytes)})" for c in found[:SHOWN])
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    raise ModelError(
        what,
        where=f"hf:{repo}",
        expected=f"one of {listed}{more}",
        hint=f"{'did you mean' if near else 'for example'} hf:{repo}:{first}"
        + ("?" if near else ""),
    )


def name_of(choice: Choice, found: list[Choice]) -> str:
    """What to write after the repository's name: the quantization where that is enough."""
    if choice.label and sum(c.label == choice.label for c in found) == 1:
        return choice.label
    return choice.file


def _names(choice: Choice) -> set[str]:
    """Ways to name the model by its file: with or without folder and suffix."""
    paths = {*choice.files, *(f.rsplit("/", 1)[-1] for f in choice.files)}
    part = _PART.fullmatch(choice.file)
    stems = {part["stem"], part["stem"].rsplit("/", 1)[-1]} if part else set()
    return paths | stems | {p.removesuffix(".gguf") for p in paths}


def _missing(names: list[str]) -> tuple[str, ...]:
    part = _PART.fullmatch(names[0])
    if part is None:
        return ()
    all_parts = (
        f"{part['stem']}-{i + 1:05}-of-{part['count']}.gguf"
        for i in range(min(int(part["count"]), 10_000))
    )
    return tuple(n for n in all_parts if n not in names)
