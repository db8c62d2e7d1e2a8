"""Saved conversations: one JSON file each, whole or not at all, for their owner's eyes.

They stand in `$XDG_STATE_HOME/gguf-runtime/chats/`, named by when they began. What is saved is what
was said, raw; how it looked on the screen is not.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf_runtime.engine.messages import Message, checked, read_json, write_json
from gguf_runtime.errors import FileError, GGUFRuntimeError, RequestError

FORMAT = 1
LEFT_S = 3600  # after which an unfinished file belongs to nobody
LISTED = 50  # conversations that a list shows
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


@dataclass(slots=True)
class Conversation:
    """One of them. `options` are those of its requests; `forked_from` is an id."""

    id: str
    model: str
    messages: list[Message] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    updated: str = ""
    forked_from: str | None = None
    _written: tuple[int, int] | None = None  # inode and time of what this process wrote or read

    @property
    def turns(self) -> int:
        """Messages of the person."""
        return sum(m["role"] == "user" for m in self.messages)

    @property
    def title(self) -> str:
        """The first words of the person."""
        first = next((m["content"] for m in self.messages if m["role"] == "user"), "")
        return " ".join(str(first).split())


def state_dir() -> Path:
    """The folder of what the program remembers; it need not exist."""
    named = os.environ.get("XDG_STATE_HOME")
    if named and os.path.isabs(named):
        return Path(named) / "gguf-runtime"
    import platformdirs

    try:
        folder = platformdirs.user_state_path("gguf-runtime", appauthor=False)
    except RuntimeError:  # no HOME, and a user whom nobody knows
        folder = Path()
    if not folder.is_absolute():
        raise FileError(
            "no home folder is known to keep conversations in",
            hint="name one: export XDG_STATE_HOME=/some/folder, or use --no-save",
        )
    return folder


def private_dir(folder: Path) -> Path:
    """Make a folder for its owner alone; FileError where that cannot be done."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise FileError(f"cannot be made: {(e.strerror or str(e)).lower()}", where=folder) from e
    return folder


class Store:
    """The folder of conversations."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._tidied = False

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self._folder if self._folder is not None else state_dir() / "chats"

    def path(self, conversation: Conversation) -> Path:
        """Where one is, or will be."""
        return self.folder / f"{conversation.id}.json"

    def new(self, model: str) -> Conversation:
        """One that is written with its first message."""
        name = time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        return Conversation(name, model, created=_now())

    def fork(self, old: Conversation) -> Conversation:
        """A copy under a name of its own."""
        twin = self.new(old.model)
        twin.messages = [dict(m) for m in old.messages]
        twin.options, twin.forked_from = dict(old.options), old.id
        return twin

    def save(self, conversation: Conversation) -> bool:
        """Write it. False: another program wrote to it meanwhile, so this one got a new name."""
        self._tidy()
        path = self.path(conversation)
        moved = _stamp(path) != conversation._written
        if moved:
            twin = self.new(conversation.model)
            conversation.forked_from, conversation.id = conversation.id, twin.id
            path = self.path(conversation)
        conversation.updated = _now()
        value = {
            "format": FORMAT,
            "id": conversation.id,
            "model": conversation.model,
            "created": conversation.created,
            "updated": conversation.updated,
            "forked_from": conversation.forked_from,
            "options": conversation.options,
            "messages": conversation.messages,
        }
        write_json(path, value)
        conversation._written = _stamp(path)
        return not moved

    def _tidy(self) -> None:
        """Make the folder; once, take away what killed programs left behind."""
        folder = private_dir(self.folder)
        if self._tidied:
            return
        self._tidied = True
        for path in folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()

    def load(self, wanted: str | None = None) -> Conversation:
        """The latest, or that whose id this is or ends with.

        Raises:
            RequestError: there is none, or there are several.
            FileError: it cannot be read, or is no conversation.
        """
        paths = self._paths()
        if not paths:
            raise RequestError("there is no saved conversation", where=self.folder)
        if wanted is None:
            return self._read(paths[0])
        fits = [p for p in paths if p.stem == wanted] or [
            p for p in paths if p.stem.endswith(wanted) or p.stem.startswith(wanted)
        ]
        if len(fits) == 1:
            return self._read(fits[0])
        raise RequestError(
            f"{len(fits) or 'no'} saved conversations fit {wanted!r}",
            expected="an id that `chat --list` shows, or its end",
            got=", ".join(p.stem for p in fits[:3]) or None,
            hint="gguf-runtime chat --list",
        )

    def listed(self) -> list[Conversation]:
        """The latest ones, newest first; files that are none are left out."""
        found = []
        for path in self._paths()[:LISTED]:
            try:
                found.append(self._read(path))
            except GGUFRuntimeError:
                continue
        return found

    def _paths(self) -> list[Path]:
        """Newest first."""
        try:
            found = [p for p in self.folder.iterdir() if p.suffix == ".json" and p.stem[:1] != "."]
            return sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.stem), reverse=True)
        except OSError:
            return []

    def _read(self, path: Path) -> Conversation:
        stamp = _stamp(path)
        value = read_json(path)
        messages = checked(value, path)
        facts: dict[str, Any] = value if isinstance(value, dict) else {}
        options = facts.get("options")
        return Conversation(
            path.stem,
            str(facts.get("model") or ""),
            messages,
            options if isinstance(options, dict) else {},
            str(facts.get("created") or ""),
            str(facts.get("updated") or ""),
            facts.get("forked_from"),
            stamp,
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
