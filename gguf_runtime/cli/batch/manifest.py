"""`OUT.jsonl.run.json`: what made an output, so that only the same goes on with it.

`facts` are compared, by name; `about` tells people more and is not compared.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.batch.output import MANIFEST, sync_folder
from gguf_runtime.cli.batch.request import Plan
from gguf_runtime.cli.batch.source import Source
from gguf_runtime.cli.terminal import OutputError
from gguf_runtime.cli.values import UsageError
from gguf_runtime.cli.version import version
from gguf_runtime.errors import show

if TYPE_CHECKING:
    from gguf_runtime import Model

SCHEMA_VERSION = 1
SHOWN = 3  # differences that a message names


def path_of(output: Path) -> Path:
    """Where an output's manifest stands."""
    return output.with_name(output.name + MANIFEST)


def read(output: Path) -> dict[str, Any]:
    """The manifest of an output that has lines; UsageError where there is none."""
    path = path_of(output)
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{output} has lines, and no {path.name} that says what made them",
            "take another -o, or start anew with --overwrite",
        ) from None
    except (OSError, ValueError) as e:
        raise UsageError(
            f"{path} cannot be read: {e}", "take another -o, or start anew with --overwrite"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("facts"), dict):
        raise UsageError(
            f"{path} is no manifest of batch", "take another -o, or start anew with --overwrite"
        )
    return found


def facts_of(plan: Plan, source: Source, fingerprint: str) -> dict[str, Any]:
    """What every answer depends on, but for the context."""
    settings = plan.settings
    asked = settings.request()
    for name in ("seed", "speculate"):
        asked.pop(name, None)
    if settings.system is not None:
        asked["system"] = settings.system
    return {
        "version": version(),
        "model": fingerprint,
        "input": source.digest[0],
        "format": source.format,
        "prompt": None if plan.fill is None else plan.fill.template,
        "keep": list(plan.keep),
        "seed": plan.seed,
        "precision": settings.precision or "int8",
        "cache_type": settings.cache_type or "f16",
        "exact": os.environ.get("GGUF_RUNTIME_EXACT", "") not in ("", "0"),
        "template": _template(settings.template),
        "settings": asked | plan.form.request(),
    }


def about(name: str, m: Model, source: Source, total: int | None) -> dict[str, Any]:
    """What people may want to know later."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "begun": now,
        "model": {
            "name": name,
            "path": str(m.path),
            "architecture": m.info.architecture,
            "type": m.info.type,
        },
        "input": {"name": source.name, "bytes": source.digest[1], "lines": total},
        "threads": m.threads,
        "isa": m.isa,
    }


def _template(asked: str | None) -> str | None:
    """A template by its name; one in a file by its digest, for the file may change."""
    if asked is None:
        return None
    try:
        return hashlib.sha256(Path(asked).read_bytes()).hexdigest()
    except OSError:
        return asked


def write(output: Path, facts: dict[str, Any], about: dict[str, Any]) -> None:
    """Write the manifest at once and for good."""
    path = path_of(output)
    new = path.with_name(path.name + ".tmp")
    data = {"schema_version": SCHEMA_VERSION, "facts": facts, "about": about}
    try:
        with open(new, "w", encoding="utf-8") as f:
            json.dump(data, f, ensure_ascii=False, indent=1)
            f.write("\n")
            f.flush()
            os.fsync(f.fileno())
        os.rename(new, path)
    except OSError as e:
        new.unlink(missing_ok=True)
        raise OutputError(e, str(path)) from e
    sync_folder(path.parent)


def refuse_other(output: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """UsageError that names what differs; names that only one side has yet are passed over."""
    old, new = _flat(before), _flat(now)
    told = [
        f"{name}: {_short(old.get(name))} then, {_short(new.get(name))} now"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if told:
        more = f" (and {len(told) - SHOWN} more)" if len(told) > SHOWN else ""
        raise UsageError(
            f"{output} was made otherwise, so this run cannot go on with it",
            "; ".join(told[:SHOWN]) + more,
            "give the same as then, take another -o, or start anew with --overwrite",
        )


def _flat(facts: dict[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{before}{name}.")
        else:
            out[before + name] = value
    return out


def _short(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, list):
        return ", ".join(_short(v) for v in value)
    return show(value, 40) if isinstance(value, str) else str(value)
