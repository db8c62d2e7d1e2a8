"""An output line: the answer's fields as `run --json` has them, and which line it is.

Whatever depends on the moment (times, what was found in the cache or guessed ahead) stands in
`timings`, the last field; the rest is the same in every run, whatever was computed beside it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from gguf_runtime.cli import result
from gguf_runtime.cli.batch import openai
from gguf_runtime.cli.batch.request import Item
from gguf_runtime.engine.completion import Completion
from gguf_runtime.errors import GGUFRuntimeError

USAGE = ("prompt", "generated", "reasoning")  # the same in every run …
OF_THE_MOMENT = ("cached", "drafted", "accepted")  # … and what is not
TIMINGS = ("prefill_s", "ttft_s", "decode_s", "total_s", "prefill_tps", "decode_tps")


def facts_of(
    item: Item, completion: Any, error: BaseException | None, known: Collection[Any] = ()
) -> dict[str, Any]:
    """The fields of a line; `known` are the model's own notices, which every answer repeats."""
    get = result.get
    usage, timings = get(completion, "usage", None), get(completion, "timings", None)
    facts: dict[str, Any] = {"line": item.line}
    if item.has_id:
        facts["id"] = item.id
    facts["seed"] = item.seed
    if item.columns is not None:
        facts["columns"] = item.columns
    facts |= {
        "text": get(completion, "text", ""),
        "reasoning": get(completion, "reasoning", None),
        "tool_calls": list(get(completion, "tool_calls", None) or ()),
        "object": get(completion, "object", None),
        "ids": [int(i) for i in get(completion, "ids", ())],
        "finish_reason": "error" if error else get(completion, "finish_reason", "error"),
        "stop": get(completion, "stop", None),
        "usage": {k: int(get(usage, k, 0) or 0) for k in USAGE},
        "sampling": dict(get(completion, "sampling", None) or {}),
        "notices": [
            {"code": n.code, "message": n.message}
            for n in get(completion, "notices", ())
            if n not in known
        ],
    }
    logprobs = get(completion, "logprobs", None)
    if logprobs is not None:
        facts["logprobs"] = logprobs
    if error is not None:
        facts["error"] = _error(error, item.line)
    facts["timings"] = {k: _rounded(get(timings, k, None)) for k in TIMINGS}
    facts["timings"] |= {k: int(get(usage, k, 0) or 0) for k in OF_THE_MOMENT}
    return facts


def failed(item: Item, error: BaseException) -> dict[str, Any]:
    """The fields of a line that was not answered."""
    return facts_of(item, Completion(), error)


def shaped(item: Item, facts: dict[str, Any], form: str, model: str) -> dict[str, Any]:
    """The fields in the form of the input: ours, or OpenAI's."""
    return openai.line(item, facts, model) if form == "openai" else facts


def encoded(facts: dict[str, Any]) -> bytes:
    """The bytes of a line, its end among them."""
    text = result.dumps(facts) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a character, copied from the input
        return (json.dumps(json.loads(text)) + "\n").encode()


def is_error(facts: dict[str, Any]) -> bool:
    """Whether a line that was read back is one that was not answered."""
    return facts.get("error") is not None


def notices_of(facts: dict[str, Any], known: Collection[str]) -> list[tuple[int, str, str]]:
    """(line, code, message) of the notices of a line that was read back, but for known codes."""
    return [
        (facts["line"], n["code"], n["message"])
        for n in facts.get("notices", ())
        if n["code"] not in known
    ]


def _rounded(x: float | None) -> float | None:
    return None if x is None else round(x, 6)


def _error(error: BaseException, line: int) -> dict[str, Any]:
    facts = result.error_facts(error)
    if isinstance(error, GGUFRuntimeError) and facts["where"] is None:
        facts["where"] = f"line {line:,}"
    return facts
