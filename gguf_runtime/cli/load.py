"""Load a model for a command: options in, notices and progress out."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.prompt import stdin_is_terminal
from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.errors import (
    GGUFRuntimeError,
    MachineError,
    ModelError,
    RequestError,
    escape,
)
from gguf_runtime.hub.catalog import find
from gguf_runtime.hub.places import network_is_off
from gguf_runtime.hub.resolve import size

if TYPE_CHECKING:
    from gguf_runtime import Model

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def load(terminal: Terminal, name: str, **options: Any) -> Model:
    """The model, with what its loading had to say on stderr.

    `options` are Model's own; `context` and `max_memory` are taken as typed. `nice` lowers this
    process's priority first.
    """
    lower_priority(options.pop("nice", None))
    options["context"] = parse_context(options.get("context"))
    options["max_memory"] = parse_size(options.get("max_memory"))
    check_isa()
    offer_pull(terminal, name, offline=bool(options.get("offline")))
    begin = time.monotonic()
    from gguf_runtime import Model

    model = Model(name, progress=terminal.progress, **options)
    terminal.clear()
    if terminal.verbose:
        terminal.say(f"loaded in {time.monotonic() - begin:.2f} s")
    pass_on(terminal, getattr(model, "notices", ()))
    kept = getattr(model, "pack_file", None)
    if kept is not None and kept.made:
        terminal.say(f"packs are kept in {kept.path}, {size(kept.size_bytes)}")
    return model


def lower_priority(nice: int | None) -> None:
    """Have this process, and all threads that it starts from now on, give way to others."""
    if nice is None:
        return
    if not hasattr(os, "nice"):
        raise UsageError("--nice: this system has no such priorities")
    os.nice(nice)


def check_isa() -> None:
    """Refuse a GGUF_RUNTIME_ISA that cannot be had, with the list of those that can."""
    from quant import cpu
    from quant.errors import QuantError

    try:
        cpu.isa()
    except QuantError as e:
        if cpu.supported():
            raise UsageError(e.what, *([e.hint] if e.hint else [])) from e
        raise MachineError(e.what, hint=e.hint) from e


def refuse_without_template(name: str) -> None:
    """Before anything is loaded: RequestError where the model's file has no chat template."""
    from gguf_runtime.engine.prompt import NO_CONVERSATION
    from gguf_runtime.gguf import open_file
    from gguf_runtime.hub.resolve import resolve

    try:
        with open_file(resolve(name)) as file:
            has_template = bool(file.metadata.get("tokenizer.chat_template"))
    except GGUFRuntimeError:
        return  # `load` offers to fetch it, or says what is wrong
    if not has_template:
        raise RequestError(NO_CONVERSATION[0], where=name, hint=NO_CONVERSATION[1])


def offer_pull(terminal: Terminal, name: str, *, offline: bool) -> None:
    """At a terminal, ask whether a model of the catalog or the hub that is missing shall be fetched.

    Where nobody can be asked, loading says that it is missing, with the command that fetches it.
    """
    if offline or network_is_off() or terminal.quiet:
        return
    if not (stdin_is_terminal() and terminal.err_is_terminal):
        return
    if name.lower().startswith("hf:"):
        _offer_from_hub(terminal, name)
        return
    entry = find(name)
    if entry is None or entry.present or Path(name).exists():
        return
    note = f" ({entry.licence_note})" if entry.licence_note else ""
    terminal.say(
        f"{entry.name} is not on this machine: {size(entry.download_bytes)},"
        f" licence {entry.licence}{note}"
    )
    if not _agrees(terminal, "fetch it now?"):
        raise ModelError(
            f"{entry.name} is not on this machine", hint=f"gguf-runtime pull {entry.name}"
        )
    from gguf_runtime.hub.puller import pull

    pull(entry.name, progress=terminal.progress)
    terminal.clear()


def _offer_from_hub(terminal: Terminal, text: str) -> None:
    from gguf_runtime.hub import hubcache

    name = hubcache.parse(text)
    if hubcache.find(name) is not None:
        return
    terminal.say(f"{name} is not on this machine")
    if not _agrees(terminal, "ask the hub for it?"):  # size and licence are not known before
        raise hubcache.not_here(name)
    from gguf_runtime.cli.models import describe
    from gguf_runtime.hub import hubapi, hubpull

    offer = hubapi.look(name)
    terminal.say(f"{escape(offer.choice.file)}: {describe(offer)}")
    if not _agrees(terminal, "fetch it now?"):
        raise hubcache.not_here(name)
    hubpull.pull(name, offer, progress=terminal.progress)
    terminal.clear()


def pass_on(terminal: Terminal, notices: Iterable[Any]) -> None:
    """The engine's notices become ours; each is shown once."""
    for n in notices:
        terminal.notice(n.code, n.message)


def parse_context(text: str | None) -> int | str | None:
    """`4096`, `4,096`, `4k` or `max`."""
    if text is None or text == "max":
        return text
    match = re.fullmatch(r"(\d[\d,_]*)([kK]?)", text)
    number = int(re.sub(r"[,_]", "", match[1])) * (1024 if match[2] else 1) if match else 0
    if number < 1:
        raise UsageError(
            "--context: not a number of tokens", f"expected 4096, 4k or max, got {text!r}"
        )
    return number


def parse_size(text: str | None) -> int | None:
    """`800MB`, `1.5G`, `2GiB` or bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper())
    unit = (_UNITS | _BINARY).get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise UsageError("--max-memory: not a size", f"expected 800MB, 2GB or 2GiB, got {text!r}")
    return int(float(match[1]) * unit)


def _agrees(terminal: Terminal, question: str) -> bool:
    terminal.ask(f"{question} [Y/n] ")
    try:
        return input().strip().lower() in ("", "y", "yes")
    except EOFError:
        return False
