"""Conversations as files: JSON that is there as a whole or not at all, readable by its owner alone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gguf_runtime.errors import FileError, RequestError, show

Message = dict[str, Any]

OWNER_ONLY = 0o600


def write_messages(path: str | os.PathLike[str], messages: Sequence[Message]) -> None:
    """Write a list of messages, as `read_messages` and `run --messages` read it."""
    write_json(path, list(messages))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write JSON under another name, flush it to the disk, and rename it; FileError if that fails."""
    target = Path(path).expanduser()
    # A lone surrogate, which no message should hold, must not cost the rest of the conversation.
    data = json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.replace(scratch, target)
        except BaseException:
            with contextlib.suppress(OSError):
                scratch.unlink()
            raise
    except OSError as e:
        raise FileError(f"cannot be written: {(e.strerror or str(e)).lower()}", where=path) from e


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds; FileError where it cannot be read or is none."""
    try:
        return json.loads(Path(path).expanduser().read_bytes())
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=path) from e
    except (ValueError, RecursionError) as e:
        raise FileError(f"no JSON: {e}", where=path) from None


def read_messages(path: str | os.PathLike[str]) -> list[Message]:
    """The messages of a file: a list, or an object with `messages`.

    Raises:
        FileError: it cannot be read, or is no JSON.
        RequestError: it is no conversation.
    """
    return checked(read_json(path), path)


def checked(found: Any, where: str | os.PathLike[str]) -> list[Message]:
    """Messages out of what a JSON file held; RequestError where that is no conversation."""
    if isinstance(found, dict) and "messages" in found:
        found = found["messages"]
    if not isinstance(found, list):
        raise RequestError(
            "not a list of messages",
            where=where,
            expected='[{"role": "user", "content": "…"}]',
            got=show(found),
        )
    for k, m in enumerate(found):
        if not isinstance(m, dict) or not isinstance(m.get("role"), str) or "content" not in m:
            raise RequestError(f"message {k} has no role or no content", where=where, got=show(m))
    return [dict(m) for m in found]
