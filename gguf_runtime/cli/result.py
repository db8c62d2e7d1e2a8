"""The JSON of `run`: one object (`--json`) or events (`--jsonl`); run.schema.json describes both."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.cli.version import version
from gguf_runtime.errors import GGUFRuntimeError

if TYPE_CHECKING:
    from gguf_runtime import Model

SCHEMA_VERSION = 1
USAGE = ("prompt", "cached", "generated", "reasoning", "drafted", "accepted")
TIMINGS = (
    "load_s",
    "compile_s",
    "prefill_s",
    "ttft_s",
    "decode_s",
    "total_s",
    "prefill_tps",
    "decode_tps",
)


def dumps(value: object) -> str:
    """One line of JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), ensure_ascii=False, separators=(", ", ": "))


def answer(
    terminal: Terminal, name: str, model: Model | None, completion: Any, error: BaseException | None
) -> dict[str, Any]:
    """The object of `--json`, complete whatever happened."""
    facts: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "version": version(),
        "model": _model(name, model),
        "text": get(completion, "text", ""),
        "reasoning": get(completion, "reasoning", None),
        "tool_calls": list(get(completion, "tool_calls", None) or ()),
        "object": get(completion, "object", None),
        "ids": [int(i) for i in get(completion, "ids", ())],
        "finish_reason": get(completion, "finish_reason", "error"),
        "stop": get(completion, "stop", None),
        "usage": {k: int(get(get(completion, "usage", None), k, 0) or 0) for k in USAGE},
        "timings": {k: get(get(completion, "timings", None), k, None) for k in TIMINGS},
        "sampling": _sampling(get(completion, "sampling", None)),
        "seed": get(completion, "seed", None),
        "context": _context(model, completion),
        "threads": get(model, "threads", None),
        "isa": get(model, "isa", None),
        "notices": [{"code": n.code, "message": n.message} for n in terminal.notices],
    }
    logprobs = get(completion, "logprobs", None)
    if logprobs is not None:
        facts["logprobs"] = logprobs
    if error is not None:
        facts["error"] = error_facts(error)
    return facts


def error_facts(error: BaseException) -> dict[str, Any]:
    """The `error` object."""
    if isinstance(error, GGUFRuntimeError):
        return dict(error.as_dict())
    return {
        "type": type(error).__name__,
        "message": str(error),
        "where": None,
        "expected": None,
        "got": None,
        "hint": None,
        "exit_code": 2 if type(error).__name__ == "UsageError" else 70,
    }


def get(source: Any, name: str, default: Any) -> Any:
    """A field of an object or of a mapping, or the default when there is none."""
    if isinstance(source, dict):
        return source.get(name, default)
    return getattr(source, name, default)


def _model(name: str, model: Model | None) -> dict[str, Any]:
    info = get(model, "info", None)
    path = get(model, "path", None) or get(info, "path", None)
    return {
        "name": name,
        "path": None if path is None else str(path),
        "fingerprint": get(info, "fingerprint", None),
        "architecture": get(info, "architecture", None),
        "type": get(info, "type", None),
    }


def _sampling(values: Any) -> dict[str, Any]:
    if is_dataclass(values) and not isinstance(values, type):
        return asdict(values)
    return dict(values or {})


def _context(model: Model | None, completion: Any) -> dict[str, Any]:
    """Positions that the request took; the token that filled the context has none of its own."""
    usage = get(completion, "usage", None)
    used = int(get(usage, "prompt", 0) or 0) + int(get(usage, "generated", 0) or 0)
    limit = get(model, "context", None)
    return {"used": used if limit is None else min(used, limit), "limit": limit}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
