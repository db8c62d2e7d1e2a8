"""Commands that change the conversation, its settings or its model."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gguf_runtime.cli.talk import settings, turns
from gguf_runtime.cli.talk.line import unfenced
from gguf_runtime.cli.talk.talk import Talk
from gguf_runtime.engine.messages import read_messages, write_messages
from gguf_runtime.errors import FileError, GGUFRuntimeError, RequestError

LARGEST_FILE = 64 << 20  # bytes that /file reads


def clear(talk: Talk, _: str) -> None:
    """Begin a new conversation."""
    was = talk.saved
    talk.saved, talk.files = None, []
    talk.begin()
    kept = f"; it is kept as {was.id}" if was is not None and talk.saving else ""
    talk.terminal.say(f"the conversation is forgotten{kept}")


def regenerate(talk: Talk, _: str) -> None:
    """Answer the last message again."""
    effective = settings.effective(talk.model, talk.request)
    if effective.get("temperature") == 0 or "seed" in talk.request:
        fixed = "temperature is 0" if effective.get("temperature") == 0 else "the seed is fixed"
        talk.terminal.dim(f"{fixed}, so the answer will be the same (/set changes that)")
    _again(talk, None)


def undo(talk: Talk, _: str) -> None:
    """Take the last message and its answer back."""
    text = talk.chat.undo()
    talk.last = None
    talk.save()
    short = " ".join(text.split())
    talk.terminal.say(f"taken back: {short if len(short) <= 60 else short[:59] + '…'}")
    talk.terminal.dim(f"{talk.tokens():,} tokens are left")


def edit(talk: Talk, text: str) -> None:
    """Change the last message and send it."""
    old = next((m["content"] for m in reversed(talk.chat.messages) if m["role"] == "user"), None)
    if old is None:
        raise RequestError("there is no message to change")
    new: str | None = unfenced(text)
    if not text:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if editor:
            new = _in_editor(editor, old)
        else:
            talk.terminal.dim("change the message and send it; an empty line leaves it as it is")
            new = talk.lines.ask(old)
    if not new or not new.strip() or new == old:
        talk.terminal.say("the message stays as it is")
        return
    _again(talk, new)


def _again(talk: Talk, text: str | None) -> None:
    """The last turn once more, with another message where one is given; kept if that fails."""
    before = list(talk.chat.messages)
    old = talk.chat.undo()
    n = len(talk.chat.messages)
    try:
        turns.say(talk, old if text is None else text)
    finally:
        if len(talk.chat.messages) <= n:
            talk.chat.messages[:] = before
            talk.save()


def _in_editor(editor: str, text: str) -> str:
    handle, name = tempfile.mkstemp(".md", "message-")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        code = subprocess.call([*shlex.split(editor), name])
        if code:
            raise RequestError(
                f"{editor} ended with code {code}", hint="the message stays as it is"
            )
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError) as e:
        raise RequestError(f"the message cannot be changed with {editor}: {e}") from e
    finally:
        path.unlink(missing_ok=True)


def system(talk: Talk, text: str) -> None:
    """Show or change the system message."""
    if not text:
        talk.terminal.say(talk.system if talk.system is not None else "there is no system message")
        return
    new = None if text == "none" else unfenced(text)
    messages = [m for m in talk.chat.messages if m["role"] != "system"]
    if new is not None:
        messages.insert(0, {"role": "system", "content": new})
    talk.system = new
    talk.chat.messages[:] = messages
    talk.save()
    again = talk.tokens() if any(m["role"] == "user" for m in messages) else 0
    later = f"; with the next message {again:,} tokens are read again" if again else ""
    talk.terminal.say(("no system message" if new is None else "the system message is set") + later)


def save(talk: Talk, name: str) -> None:
    """Write the messages to a file."""
    if name:
        write_messages(name, talk.chat.messages)
        talk.terminal.say(f"wrote {len(talk.chat.messages)} messages to {name}")
    elif talk.saved is not None and talk.saving:
        talk.save()
        talk.terminal.say(f"saved as {talk.saved.id}: {talk.store.path(talk.saved)}")
    else:
        raise RequestError("nothing is saved by itself here", hint="/save FILE")


def load(talk: Talk, name: str) -> None:
    """Go on with a conversation from a file, or with a saved one."""
    if not name:
        raise RequestError("which conversation?", hint="/load FILE, or an id of `chat --list`")
    if Path(name).expanduser().is_file():
        messages = read_messages(name)
        talk.begin(messages)
        talk.saved = None
    else:
        found = talk.store.load(name)
        talk.begin(found.messages)
        talk.saved = found
    talk.files = []
    n = sum(m["role"] == "user" for m in talk.chat.messages)
    talk.terminal.say(f"going on after {n} messages of yours")
    turns.reread(talk)


def set_one(talk: Talk, text: str) -> None:
    """Show all settings, or change one."""
    if not text:
        for name, value in settings.effective(talk.model, talk.request).items():
            talk.terminal.say(f"{name} {value}" + (" (set)" if name in talk.request else ""))
        return
    if len(text.replace("=", " ", 1).split(None, 1)) == 1:
        name = settings.set_option(talk.model, dict(talk.request), f"{text} default")
    else:
        name = settings.set_option(talk.model, talk.request, text)
        talk.save()
    talk.terminal.say(f"{name} {settings.effective(talk.model, talk.request).get(name, 'none')}")


def file(talk: Talk, text: str) -> None:
    """Put files before the next message."""
    if text == "none":
        talk.files = []
    for name in [text] if Path(text).expanduser().is_file() else shlex.split(text):
        if name == "none":
            continue
        content = _text_of(name)
        talk.files.append((name, content))
        n = len(talk.model.tokenize(content))
        talk.terminal.say(f"{name}: {n:,} tokens, before the next message (/file none: not)")
    if not text or text == "none":
        before = ", ".join(name for name, _ in talk.files) or "no file"
        talk.terminal.say(f"{before} goes before the next message")


def _text_of(name: str) -> str:
    try:
        path = Path(name).expanduser()
        if path.stat().st_size > LARGEST_FILE:
            raise RequestError(
                "the file is too large for a message",
                where=name,
                expected=f"at most {LARGEST_FILE:,} bytes",
                got=f"{path.stat().st_size:,}",
            )
        return path.read_bytes().decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=name) from e
    except UnicodeDecodeError as e:
        raise RequestError(f"byte {e.start:,} is not UTF-8", where=name) from None


def think(talk: Talk, word: str) -> None:
    """Whether the model reasons before it answers."""
    if word not in ("on", "off", "auto"):
        now = talk.request.get("think")
        state = "auto" if now is None else "on" if now else "off"
        raise RequestError(f"reasoning is {state}", expected="/think on, off or auto")
    wanted: dict[str, Any] = {k: v for k, v in talk.request.items() if k != "think"}
    if word != "auto":
        wanted["think"] = word == "on"
    settings.check(talk.model, wanted)
    talk.request = wanted
    talk.terminal.say(f"reasoning is {word}")


def model(talk: Talk, name: str) -> None:
    """Go on with another model; if it cannot be loaded, with the one that was there."""
    from gguf_runtime.cli.load import refuse_without_template
    from gguf_runtime.hub.resolve import resolve

    if not name:
        talk.terminal.say(repr(talk.model))
        return
    resolve(name)
    if talk.settings.template is None:
        refuse_without_template(name)
    messages, before = list(talk.chat.messages), talk.name
    talk.chat.close()
    talk.model.close()
    talk.name = name
    try:
        talk.open()
    except GGUFRuntimeError as e:
        talk.terminal.error(e.lines())
        talk.name = before
        talk.open()
    kept = talk.system
    talk.begin(messages)
    talk.system = kept
    talk.save()
    talk.terminal.say(f"going on with {talk.name}")
    turns.reread(talk)
