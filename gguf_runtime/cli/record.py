"""Records of a run: what was read, how, what came out, and how near the choices were.

`run --record` writes one, `replay` repeats it. A record holds ids, so that neither a template nor a
tokenizer stands between it and its repetition; record.schema.json describes it.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.terminal import OutputError
from gguf_runtime.cli.version import of, version
from gguf_runtime.errors import FileError, escape

if TYPE_CHECKING:
    from gguf_runtime import Model

RECORD_VERSION = 1
BEST = 5  # logits of each choice that are kept
# What was asked of the answer and has a say in which tokens are chosen.
REPEATED = (
    *("max_tokens", "stop", "stop_ids", "stop_on_loop", "think_budget"),
    *("schema", "regex", "grammar", "choices"),
)
LOGITS_BYTES = 128 << 20  # most memory for logits at once

Top = list[tuple[int, float]]


def make(
    m: Model, name: str, prompt_ids: Sequence[int], request: dict[str, Any], out: Any
) -> dict[str, Any]:
    """The record of an answer.

    Args:
        m: the model that gave it; name: as it was asked for.
        prompt_ids: what was read.
        request: options that were asked for, as `Model.stream` takes them.
        out: the Completion.
    """
    asked = {k: v for k, v in request.items() if k in REPEATED}
    return {
        "record_version": RECORD_VERSION,
        "model": {
            "name": name,
            "path": os.path.abspath(m.path),
            "fingerprint": m.info.fingerprint,
            "architecture": m.info.architecture,
            "type": m.info.type,
        },
        "machine": machine(m),
        "sampling": dict(out.sampling) | {"seed": out.seed, "sample": request.get("sample", 0)},
        "request": asked,
        "prompt_ids": [int(i) for i in prompt_ids],
        "ids": [int(i) for i in out.ids],
        "text": out.text,
        "finish_reason": out.finish_reason,
        "stop": out.stop,
        "top": [[[i, x] for i, x in row] for row in best(m, prompt_ids, out.ids)],
    }


def machine(m: Model) -> dict[str, Any]:
    """What could make a difference, beside model and sampling."""
    return {
        "threads": m.threads,
        "context": m.context,
        "precision": m.precision,
        "cache_type": m.cache_type,
        "isa": m.isa,
        "version": version(),
        "python": platform.python_version(),
        "numpy": of("numpy"),
        "numba": of("numba"),
        "llvmlite": of("llvmlite"),
    }


def best(m: Model, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[Top]:
    """The five largest logits from which each of ids was chosen, and that of the chosen one."""
    whole = [*prompt_ids, *ids]
    first = len(prompt_ids) - 1
    rows = max(1, LOGITS_BYTES // (4 * m.info.n_vocab))
    found: list[Top] = []
    for a in range(first, len(whole) - 1, rows):
        b = min(a + rows, len(whole) - 1)
        logits = m.logits(whole[:b], positions=slice(a, b))
        found += [top(row, [i]) for row, i in zip(logits, whole[a + 1 : b + 1], strict=True)]
    return found


def top(logits: Any, others: Sequence[int] = ()) -> Top:
    """Ids and values of the five largest, by falling value, then by id; `others` behind them."""
    import numpy as np

    n = min(BEST, len(logits))
    ids: list[int] = np.argpartition(-logits, n - 1)[:n].tolist()
    ids.sort(key=lambda i: (-logits[i], i))
    return [(i, float(logits[i])) for i in [*ids, *(i for i in others if i not in ids)]]


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record; it is there whole, or not at all."""
    text = json.dumps(record, ensure_ascii=False, indent=1)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text + "\n")
                f.flush()
                os.fsync(f.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as e:
        raise OutputError(e, str(path)) from e


def refuse_unwritable(path: Path) -> None:
    """OutputError, before anything is computed, where no record could be written."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "is a directory")
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        os.unlink(temporary)
    except OSError as e:
        raise OutputError(e, str(path)) from e


def read(path: str) -> dict[str, Any]:
    """A record from its file.

    Raises:
        FileError: it cannot be read, is no record, or one of another version.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=path) from e
    except (ValueError, RecursionError) as e:
        raise FileError(f"not JSON: {escape(str(e))}", where=path) from None
    kind = found.get("record_version") if isinstance(found, dict) else None
    if kind is None:
        raise FileError(
            "no record of a run",
            where=path,
            hint="gguf-runtime run MODEL PROMPT --record r.json makes one",
        )
    if kind != RECORD_VERSION or not _sound(found):
        raise FileError(
            "a record that this version cannot read",
            where=path,
            expected=f"record_version {RECORD_VERSION}, complete",
            got=f"record_version {kind!r}",
        )
    return dict(found)


def _sound(record: dict[str, Any]) -> bool:
    fields = {"model": dict, "machine": dict, "sampling": dict, "request": dict, "top": list}
    fields |= {"prompt_ids": list, "ids": list}
    if not all(isinstance(record.get(k), t) for k, t in fields.items()):
        return False
    ids = [*record["prompt_ids"], *record["ids"]]
    return all(isinstance(i, int) for i in ids) and bool(record["prompt_ids"])


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
