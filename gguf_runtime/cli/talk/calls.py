"""Tools of a conversation: functions of a Python file, and a question before each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.talk.keyboard import Loud
from gguf_runtime.cli.terminal import Terminal, clean
from gguf_runtime.errors import FileError, RequestError

if TYPE_CHECKING:
    from gguf_runtime.cli.talk.talk import Talk

SHOWN = 200  # characters of a call or a result that are told
ASKED = 4000  # of a call that is asked about: nothing of it is to be overlooked


def tools_of(path: str, talk: Talk) -> dict[str, Any]:
    """What `Model.chat` takes: the functions of a file, and who is asked about their calls.

    Raises:
        FileError: the file cannot be read or run. RequestError: it has no functions, or one that
            cannot be a tool.
    """
    from gguf_runtime.engine.tools import tools_of as checked

    return {"tools": checked(functions(path)), "confirm": asker(talk)}


def functions(path: str) -> list[Callable[..., Any]]:
    """The public functions that a Python file defines; those of `TOOLS`, where it has that."""
    module = ModuleType("tools")
    module.__file__ = path
    try:
        with open(path, "rb") as f:
            source = f.read()
        exec(compile(source, path, "exec"), module.__dict__)
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=path) from e
    except Exception as e:
        line = getattr(e, "lineno", None)
        place = f"{path}, line {line}" if line else path
        raise FileError(f"is no tools file: {type(e).__name__}: {e}", where=place) from e
    listed = module.__dict__.get("TOOLS")
    if listed is None:
        own = [v for k, v in vars(module).items() if not k.startswith("_")]
        listed = [v for v in own if callable(v) and getattr(v, "__module__", "") == "tools"]
        listed = [v for v in listed if not isinstance(v, type)]
    if not listed:
        raise RequestError("there is no function in it", where=path, expected="def name(…): …")
    return list(listed)


def asker(talk: Talk) -> Callable[[Mapping[str, Any]], bool]:
    """A question before each call; whoever says "always" is not asked about that tool again."""
    always: set[str] = set()

    def allowed(call: Mapping[str, Any]) -> bool:
        if call["name"] in always:
            return True
        if not talk.lines.interactive:
            talk.terminal.notice(
                "call-declined", "calls of tools are declined where nobody can be asked"
            )
            return False
        with Loud():
            talk.terminal.ask(f"call {in_words(call, ASKED)}? [y/N/always] ")
            try:
                word = input().strip().lower()
            except (EOFError, KeyboardInterrupt) as e:
                if isinstance(e, KeyboardInterrupt) and type(e) is not KeyboardInterrupt:
                    raise
                talk.terminal.say("")
                return False
        if word in ("a", "always"):
            always.add(call["name"])
        return word in ("y", "yes", "a", "always")

    return allowed


def show(terminal: Terminal, kind: str, value: Any) -> None:
    """A line about a call or its result, on stderr."""
    if kind == "tool":
        terminal.dim(f"→ {in_words(value)}")
    else:
        call, text = value
        terminal.dim(f"← {call['name']}: {_short(text)}")


def in_words(call: Mapping[str, Any], most: int = SHOWN) -> str:
    """A call as Python writes it, on one line, whatever the model put into it."""
    arguments = [f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in call["arguments"].items()]
    return _short(f"{call['name']}({', '.join(arguments)})", most)


def _short(text: str, most: int = SHOWN) -> str:
    text = " ".join(clean(text).split())
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} characters more)"
