"""OpenAI's batch files: a line's request in, and its answer in the same company's form.

Beside their fields an output line has ours: `line`, `seed`, `notices`, `timings`. What would differ
between two runs is fixed: ids are made of the line, `created` is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gguf_runtime.errors import RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.cli.batch.request import Item

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"

_OPTIONS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop": "stop",
    # Not of OpenAI's, but of those who speak its language:
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repeat_penalty",
}
# These say nothing about the answer.
_IGNORED = ("model", "user", "metadata", "store", "service_tier", "safety_identifier")
# These are fine as long as they ask for nothing.
_EMPTY: dict[str, Callable[[Any], bool]] = {
    "n": lambda x: x == 1,
    "stream": lambda x: x is False,
    "stream_options": lambda x: not x,
    "logprobs": lambda x: not x,
    "top_logprobs": lambda x: not x,
    "logit_bias": lambda x: not x,
    "tools": lambda x: not x,
    "tool_choice": lambda x: x in ("none", "auto"),
    "parallel_tool_calls": lambda x: True,
    "echo": lambda x: x is False,
    "best_of": lambda x: x == 1,
    "suffix": lambda x: not x,
}
_FINISH = {"context": "length", "time": "length", "loop": "length"}


def read(fields: dict[str, Any], item: Item) -> tuple[dict[str, Any], dict[str, Any]]:
    """(prompt, the line's own settings) of a line of a batch file; fills the item's id."""
    if "custom_id" in fields:
        item.id, item.has_id = fields["custom_id"], True
    url, method = fields.get("url", CHAT), fields.get("method", "POST")
    if url not in (CHAT, PLAIN):
        raise RequestError(f"unknown url {show(url, 60)}", expected=f"{CHAT} or {PLAIN}")
    if method != "POST":
        raise RequestError(f"unknown method {show(method, 20)}", expected="POST")
    body = fields.get("body")
    if not isinstance(body, dict):
        raise RequestError("the line has no body", expected='"body": {"messages": […]}')
    item.raw = url == PLAIN
    prompt = {"prompt": body.get("prompt")} if item.raw else {"messages": _messages(body)}
    own: dict[str, Any] = {"raw": True} if item.raw else {}
    for name, value in body.items():
        if name in ("messages", "prompt", *_IGNORED) or value is None:
            continue
        if name == "response_format":
            own |= _form(value)
        elif name in _OPTIONS:
            own[_OPTIONS[name]] = value
        elif name not in _EMPTY:
            raise RequestError(f"unknown field {show(name, 40)} in the body")
        elif not _EMPTY[name](value):
            raise RequestError(f"{name} cannot be had here", got=show(value, 60))
    return prompt, own


def _messages(body: dict[str, Any]) -> list[Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(
            "the body has no messages", expected='[{"role": "user", "content": "…"}]'
        )
    return [_plain(m) for m in messages]


def _form(value: Any) -> dict[str, Any]:
    """`response_format` as a constraint."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"schema": {"type": "object"}}
    named = value.get("json_schema") if kind == "json_schema" else None
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
        raise RequestError(
            "unknown response_format",
            expected="text, json_object, or json_schema with a schema",
            got=show(value, 60),
        )
    return {"schema": named["schema"]}


def _plain(message: Any) -> Any:
    """A message whose content is one text: parts of type text are joined."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(
            "a message has no role", expected="a role and content", got=show(message, 60)
        )
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kinds = [p.get("type") if isinstance(p, dict) else None for p in content]
    other = [k for k in kinds if k != "text"]
    if other:
        raise RequestError("content that is no text", expected="text", got=show(other[0], 40))
    return message | {"content": "".join(str(p.get("text", "")) for p in content)}


def line(item: Item, facts: dict[str, Any], model: str) -> dict[str, Any]:
    """The output line of an answer or an error; `facts` are those of our own form."""
    error = facts.get("error")
    body = _error(error) if error else _body(item, facts, model)
    return {
        "id": f"batch_req_{item.line}",
        "custom_id": item.id,
        "response": {
            "status_code": 400 if error else 200,
            "request_id": f"req_{item.line}",
            "body": body,
        },
        "error": {"code": error["type"], "message": error["message"]} if error else None,
        "line": item.line,
        "seed": item.seed,
        "notices": facts["notices"],
        "timings": facts["timings"],
    }


def _body(item: Item, facts: dict[str, Any], model: str) -> dict[str, Any]:
    usage = facts["usage"]
    finish = _FINISH.get(facts["finish_reason"], facts["finish_reason"])
    choice: dict[str, Any] = {"index": 0}
    if item.raw:
        choice["text"] = facts["text"]
    else:
        message = {"role": "assistant", "content": facts["text"], "refusal": None}
        if facts["reasoning"] is not None:
            message["reasoning_content"] = facts["reasoning"]
        choice["message"] = message
    return {
        "id": f"{'cmpl' if item.raw else 'chatcmpl'}-{item.line}",
        "object": "text_completion" if item.raw else "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice | {"logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage["prompt"],
            "completion_tokens": usage["generated"],
            "total_tokens": usage["prompt"] + usage["generated"],
        },
    }


def _error(error: dict[str, Any]) -> dict[str, Any]:
    facts = [f"{w} {error[w]}" for w in ("expected", "got") if error[w] is not None]
    text = "; ".join([error["message"], *facts])
    return {
        "error": {"message": text, "type": "invalid_request_error", "param": None, "code": None}
    }
