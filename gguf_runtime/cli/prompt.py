r"""The prompt of `run`: files, then stdin, then PROMPT, joined by a blank line.

Stdin is read to its end when it is a pipe (also beside a PROMPT), when it is a file and no PROMPT is
given, or when `-` names it. A file on stdin beside a PROMPT is left alone, so that
`while read x; do gg run m "$x"; done < list` keeps its list. One line end at the end of a file or
of stdin is dropped, as the shell does; otherwise text is taken literally.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gguf_runtime.cli.parse import UsageError
from gguf_runtime.errors import FileError, RequestError

STDIN = "-"
BLANK_LINE = "\n\n"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "'": "'", '"': '"'}


def gather(
    argument: str | None,
    option: str | None,
    files: Sequence[str],
    *,
    escape: bool = False,
    missing: tuple[str, str] = ("no prompt", 'give one: gg run MODEL "Why is the sky blue?"'),
) -> str | None:
    """The whole prompt; None when nothing was given and a person sits at the terminal.

    `missing` is said where there is none.

    Raises:
        UsageError: no prompt and no terminal, two prompts, or an empty one.
        FileError, RequestError: a file that cannot be read, or text that is not UTF-8.
    """
    if argument is not None and option is not None:
        raise UsageError("two prompts", "PROMPT and -p are the same: give one of them")
    prompt = argument if option is None else option
    named = prompt == STDIN or STDIN in files
    if prompt == STDIN:
        prompt = None
    parts = [_file(f) for f in files if f != STDIN]
    if named or _is_read(prompt is not None):
        parts.append(_stdin())
    if prompt is not None:
        parts.append(unescape(literal(prompt, "PROMPT")) if escape else literal(prompt, "PROMPT"))
    text = BLANK_LINE.join(p for p in parts if p)
    if text:
        return text
    if prompt is None and not files and not named and stdin_is_terminal():
        return None
    raise UsageError(*missing)


def messages(name: str | None) -> list[dict[str, Any]]:
    """The conversation of a JSON file: a list of messages, or an object that holds one.

    Raises:
        FileError, RequestError: the file cannot be read, or is no list of messages.
    """
    if name is None:
        return []
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=name) from e
    except (ValueError, RecursionError) as e:
        raise RequestError(f"not JSON: {e}", where=name) from None
    if isinstance(found, dict) and "messages" in found:
        found = found["messages"]
    sound = isinstance(found, list) and all(
        isinstance(x, dict) and isinstance(x.get("role"), str) and "content" in x for x in found
    )
    if not sound or not found:
        raise RequestError(
            "not a list of messages", where=name, expected='[{"role": "user", "content": "…"}]'
        )
    return list(found)


def conversation(
    system: str | None, history: list[dict[str, Any]], text: str | None
) -> dict[str, Any]:
    """What `Model.stream` takes: the prompt alone, or messages."""
    if system is None and not history:
        return {"prompt": text}
    found = [{"role": "system", "content": system}] if system is not None else []
    found += history
    if text is not None:
        found.append({"role": "user", "content": text})
    return {"messages": found}


def stdin_is_terminal() -> bool:
    """Whether a person can type."""
    return sys.stdin is not None and sys.stdin.isatty()


def literal(text: str, where: str) -> str:
    """Text of the command line as UTF-8, whatever the locale; refused when its bytes were none."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"byte {e.start:,} is not UTF-8", where=where) from None
    except UnicodeEncodeError as e:
        raise RequestError(f"character {e.start:,} is not UTF-8", where=where) from None


def unescape(text: str) -> str:
    r"""Resolve \n \t \r \0 \\ \' \" \xNN \uNNNN; any other backslash stays."""
    out: list[str] = []
    i = 0
    while i < len(text):
        if text[i] != "\\" or i + 1 == len(text):
            out.append(text[i])
            i += 1
            continue
        kind = text[i + 1]
        digits = text[i + 2 : i + 2 + {"x": 2, "u": 4}.get(kind, 0)]
        if kind in _ESCAPES:
            out.append(_ESCAPES[kind])
            i += 2
        elif digits and len(digits) == (2 if kind == "x" else 4) and _is_hex(digits):
            out.append(chr(int(digits, 16)))
            i += 2 + len(digits)
        else:
            out.append("\\")
            i += 1
    return "".join(out)


def _is_hex(digits: str) -> bool:
    return all(c in "0123456789abcdefABCDEF" for c in digits)


def _is_read(has_prompt: bool) -> bool:
    """Whether stdin is read although nobody named it."""
    if sys.stdin is None:
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return True
    return stat.S_ISREG(mode) and not has_prompt


def _stdin() -> str:
    if sys.stdin is None:
        raise UsageError("stdin is closed, but - names it")
    return _decoded(sys.stdin.buffer.read(), "stdin")


def _file(name: str) -> str:
    try:
        return _decoded(Path(name).read_bytes(), name)
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=name) from e


def _decoded(data: bytes, where: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RequestError(
            f"byte {e.start:,} is not UTF-8",
            where=where,
            hint="convert it first, for example: iconv -f latin1 -t utf-8",
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
