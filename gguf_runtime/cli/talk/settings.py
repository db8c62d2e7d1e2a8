"""`/set`: the options of an answer by name, with typed values; the engine says what is out of range."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from gguf_runtime.errors import RequestError
from gguf_runtime.hub.near import suggestion

if TYPE_CHECKING:
    from gguf_runtime import Model

OTHER_NAMES = {
    "temp": "temperature",
    "n": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "stop_id": "stop_ids",
}
NOT_HERE = ("self", "templated", "reuse", "sample", "style", "tools")  # what a conversation decides
UNSET = ("default", "none")


def names() -> list[str]:
    """Options that an answer in a conversation can be given."""
    from gguf_runtime.engine.request import SAMPLING, Defaults
    from gguf_runtime.engine.turn import OPTIONS

    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [n for n, p in inspect.signature(Defaults.request).parameters.items() if p.kind in kinds]
    return sorted(n for n in {*own, *SAMPLING, *OPTIONS} if n not in NOT_HERE)


def set_option(model: Model, request: dict[str, Any], typed: str) -> str:
    """Change one option as typed, `temperature 0.7`; returns its name.

    Raises:
        RequestError: no such option, or a value that it does not take; nothing is changed then.
    """
    name, _, text = typed.replace("=", " ", 1).partition(" ")
    name = name.lstrip("-").replace("-", "_").lower()
    name = OTHER_NAMES.get(name, name)
    known = names()
    if name not in known:
        near = suggestion(name, [*known, *OTHER_NAMES])
        raise RequestError(
            f"no setting {name!r}",
            expected=", ".join(known),
            hint=f"did you mean /set {near}?" if near else None,
        )
    text = text.strip()
    if text.lower() in UNSET:
        request.pop(name, None)
        return name
    wanted = request | {name: value(name, text)}
    check(model, wanted)
    request.update(wanted)
    return name


def check(model: Model, request: dict[str, Any]) -> None:
    """RequestError where an option is out of range."""
    from gguf_runtime.engine.turn import OPTIONS, Turn

    Turn.of(**{k: v for k, v in request.items() if k in OPTIONS})
    model.request(templated=True, **{k: v for k, v in request.items() if k not in OPTIONS})


def value(name: str, text: str) -> Any:
    """What a text means: JSON where it is JSON, on and off, else the text itself."""
    if text.lower() in ("on", "true", "yes"):
        return True
    if text.lower() in ("off", "false", "no"):
        return False
    if name == "stop" and text[:1] not in ('"', "["):
        return [text]
    try:
        found = json.loads(text.replace("_", "") if text[:1].isdigit() else text)
    except ValueError:
        return text
    return [found] if name in ("stop", "stop_ids") and not isinstance(found, list) else found


def effective(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """Every option with the value in effect."""
    from gguf_runtime.engine.turn import OPTIONS

    made = model.request(templated=True, **{k: v for k, v in request.items() if k not in OPTIONS})
    facts: dict[str, Any] = dict(made.sampling.as_dict())
    facts.pop("sample", None)
    if "seed" not in request and getattr(model, "seed", None) is None:
        facts["seed"] = "random"
    facts["max_tokens"] = "end of turn" if made.max_tokens < 0 else made.max_tokens
    for name in names():
        if name in request:
            facts[name] = request[name]
        elif name not in facts:
            found = getattr(made, name, None)
            facts[name] = "none" if found in (None, (), frozenset()) else found
    return facts
