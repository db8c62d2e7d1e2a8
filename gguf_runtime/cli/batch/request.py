"""From a record to what the engine is asked: the line's own values first, then the command line's."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from gguf_runtime.cli.batch import openai
from gguf_runtime.cli.batch.fill import Fill
from gguf_runtime.cli.batch.records import Record
from gguf_runtime.cli.batch.source import TEXT_COLUMN, Format
from gguf_runtime.cli.settings import Form, Settings, table
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import FileError, RequestError, show
from gguf_runtime.hub.near import suggestion

SEEDS = 2**32
ALL = "*"  # --keep of every column

_FORM = ("raw", "no_bos", "special")
_PROMPT = ("prompt", "messages", "id")
# Settings that hold for the whole run.
_OF_THE_RUN = (
    *("threads", "context", "cache_type", "precision", "max_memory", "pack_cache", "nice"),
    *("offline", "template", "show_thinking", "show_settings"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What holds for all lines: the command line. `settings.max_tokens` is set."""

    format: Format
    seed: int
    settings: Settings
    form: Form
    fill: Fill | None = None
    keep: tuple[str, ...] = ()


@dataclass(slots=True)
class Item:
    """One line on its way: what the engine is asked, or why it is not."""

    line: int
    seed: int
    id: Any = None
    has_id: bool = False
    columns: dict[str, Any] | None = None
    request: dict[str, Any] | None = None
    error: RequestError | None = None
    raw: bool = False  # OpenAI's /v1/completions, which is answered in its own form


def seed_of(run_seed: int, line: int) -> int:
    """The seed of a line: fixed, so that a line can be asked again alone."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}:{line}".encode()).digest()[:4], "little")


def item_of(record: Record, plan: Plan) -> Item:
    """The request of a record; what is wrong with it becomes the item's error."""
    item = Item(record.line, seed_of(plan.seed, record.line), error=record.error)
    if record.error is not None:
        return item
    try:
        if plan.format == "openai":
            prompt, own = openai.read(record.fields, item)
        else:
            prompt, own = _read(record.fields, plan, item)
        item.request = _whole(prompt, own, plan, item)
    except RequestError as e:
        item.error = e
    except FileError as e:  # a line that names a schema or a grammar
        item.error = RequestError(e.what, where=e.where, hint=e.hint)
    except UsageError as e:
        item.error = RequestError(e.lines[0], hint="; ".join(e.lines[1:]) or None)
    return item


def _read(fields: dict[str, Any], plan: Plan, item: Item) -> tuple[dict[str, Any], dict[str, Any]]:
    """(prompt, the line's own settings) of a line in one of our forms."""
    if "id" in fields:
        item.id, item.has_id = fields["id"], True
    if plan.keep:
        names = fields if ALL in plan.keep else plan.keep
        item.columns = {n: fields[n] for n in names if n in fields}
    if plan.fill is not None:
        return {"prompt": plan.fill(fields)}, {}
    if plan.format != "jsonl":
        return {"prompt": fields["prompt" if plan.format != "text" else TEXT_COLUMN]}, {}
    prompt: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in fields.items():
        plain = name.replace("-", "_")
        if plain in _PROMPT:
            prompt[plain] = value
        elif plain in names_of_settings():
            key = names_of_settings()[plain]
            if key in _OF_THE_RUN:
                raise RequestError(f"{plain} holds for the whole run", hint="give it as an option")
            own[key] = value
        elif name not in plan.keep and ALL not in plan.keep:
            raise _unknown(name)
    prompt.pop("id", None)
    return prompt, own


def _whole(prompt: dict[str, Any], own: dict[str, Any], plan: Plan, item: Item) -> dict[str, Any]:
    """What `Model.batch` takes."""
    own = {k: v for k, v in own.items() if v is not None}  # null says what leaving it out says
    if isinstance(own.get("schema"), dict | bool):
        own["schema"] = json.dumps(own["schema"], ensure_ascii=False)
    form = {k: getattr(plan.form, k) for k in _FORM}
    for name in _FORM:
        if name in own:
            form[name] = _truth(name, own.pop(name))
    settings = plan.settings.having({"seed": item.seed} | own, f"line {item.line}")
    assert settings.seed is not None
    item.seed = settings.seed
    if not form["raw"] and (form["no_bos"] or form["special"]):
        raise RequestError("no_bos and special need raw: else the template decides")
    request = Form(**form).request() | settings.request()
    text, messages = prompt.get("prompt"), prompt.get("messages")
    if (text is None) == (messages is None):
        given = "neither" if text is None else "both"
        raise RequestError("a line has either a prompt or messages", got=given)
    system = settings.system
    if form["raw"] and (messages is not None or "system" in own):
        raise RequestError("messages and a system message need the template, which raw leaves out")
    if text is not None and (not isinstance(text, str) or not text):
        raise RequestError("the prompt is empty" if text == "" else "the prompt is no text")
    if messages is None and (form["raw"] or system is None):
        return request | {"prompt": text}
    said = [{"role": "user", "content": text}] if messages is None else _messages(messages)
    before = [] if system is None else [{"role": "system", "content": system}]
    return request | {"messages": [*before, *said]}


def _messages(messages: Any) -> list[Any]:
    sound = isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in messages
    )
    if not sound or not messages:
        raise RequestError(
            "not a list of messages",
            expected='[{"role": "user", "content": "…"}]',
            got=show(messages, 40),
        )
    return list(messages)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{name} is neither true nor false", got=show(value, 40))
    return value


@functools.cache
def names_of_settings() -> dict[str, str]:
    """What a line may set: long name, also of other programs and of Python, -> setting."""
    found = {
        o[2:].replace("-", "_"): n for n, p in table().items() for o in p.opts if o[1:2] == "-"
    }
    return found | {"stop_ids": "stop_id"} | {n: n for n in _FORM}


def _unknown(name: str) -> RequestError:
    near = suggestion(name, [*_PROMPT, *names_of_settings()])
    return RequestError(
        f"unknown field {show(name, 40)}",
        hint=f"did you mean {near}?" if near else f"--keep {name} copies it to the output",
    )
