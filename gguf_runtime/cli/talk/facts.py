"""Commands that tell about the conversation and change nothing."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

from gguf_runtime.cli.talk import settings
from gguf_runtime.cli.talk.talk import Talk
from gguf_runtime.errors import RequestError

CLIPBOARD = 74_994  # bytes of base64 that terminals are known to take at once
NO_CLIPBOARD = ("", "dumb", "linux")  # values of TERM


def show(talk: Talk, _: str) -> None:
    """Model, template, settings and system message."""
    say, m = talk.terminal.say, talk.model
    say(f"model     {talk.name}: {m.info.architecture} {m.info.type}, {m.path}")
    say(f"machine   {m.threads} threads, {m.isa}, context {m.context:,} tokens")
    say(f"template  {_template(m)}")
    for name, value in settings.effective(m, talk.request).items():
        say(f"setting   {name} {value}" + (" (set)" if name in talk.request else ""))
    say(f"system    {talk.system if talk.system is not None else 'none'}")
    if talk.saved is not None and talk.saving:
        say(f"saved     {talk.saved.id}: {talk.store.path(talk.saved)}")
    else:
        say("saved     " + ("with the first message" if talk.saving else "no"))


def _template(m: Any) -> str:
    template = getattr(getattr(m, "prompter", None), "template", None)
    source = getattr(template, "source", "") or ""
    if not source:
        return "none"
    knows = [
        word
        for word, sign in (("system", "system"), ("tools", "tools"), ("think", "enable_thinking"))
        if sign in source
    ]
    return f"{len(source):,} characters; it mentions {', '.join(knows) or 'no roles by name'}"


def stats(talk: Talk, _: str) -> None:
    """Speeds and tokens of the last answer, and of all."""
    say = talk.terminal.say
    if talk.last is not None:
        u, t = talk.last.usage, talk.last.timings
        say(
            f"prompt    {u.prompt:,} tokens: {u.prompt - u.cached:,} read, {u.cached:,} known"
            f"{_rate(t.prefill_tps)}"
        )
        first = f", the first after {t.ttft_s:.2f} s" if t.ttft_s is not None else ""
        say(f"answer    {u.generated:,} tokens{_rate(t.decode_tps)}{first}")
        if u.reasoning:
            say(f"reasoning {u.reasoning:,} of these")
        if u.drafted:
            say(f"guessed   {u.drafted:,} tokens, {u.accepted:,} of them right")
        say(f"ended     {talk.last.finish_reason}, seed {talk.last.seed}")
    say(f"together  {talk.read:,} tokens read, {talk.generated:,} generated")


def _rate(tps: float | None) -> str:
    return f" at {tps:,.1f} tok/s" if tps and tps < float("inf") else ""


def tokens(talk: Talk, _: str) -> None:
    """How full the context is, message by message."""
    say, m = talk.terminal.say, talk.model
    used = talk.tokens()
    say(f"{used:,} of {m.context:,} tokens are used, {100 * used // m.context} %")
    for message in talk.chat.messages:
        text = message["content"] if isinstance(message["content"], str) else ""
        short = " ".join(text.split())
        short = short if len(short) <= 40 else short[:39] + "…"
        say(f"{len(m.tokenize(text)):>8,}  {message['role']}: {short}")
    for name, text in talk.files:
        say(f"{len(m.tokenize(text)):>8,}  {name}, before the next message")


def copy(talk: Talk, _: str) -> None:
    """Put the last answer on the clipboard, by way of the terminal (OSC 52)."""
    answers = [m["content"] for m in talk.chat.messages if m["role"] == "assistant"]
    if not answers:
        raise RequestError("there is no answer to copy")
    if not talk.terminal.out_is_terminal:
        raise RequestError("stdout is no terminal, so there is no clipboard", hint="/save FILE")
    if os.environ.get("TERM", "") in NO_CLIPBOARD:
        kind = os.environ.get("TERM") or "unknown"
        raise RequestError(f"a terminal of kind {kind} has no clipboard", hint="/save FILE")
    data = base64.b64encode(answers[-1].encode("utf-8", "replace")).decode()
    if len(data) > CLIPBOARD:
        raise RequestError(
            "the answer is too long for the terminal's clipboard",
            expected=f"at most {CLIPBOARD * 3 // 4:,} bytes",
            got=f"{len(data) * 3 // 4:,}",
            hint="/save FILE",
        )
    sys.stdout.write(f"\x1b]52;c;{data}\x07")
    sys.stdout.flush()
    talk.terminal.say(f"copied {len(answers[-1]):,} characters, if the terminal allows it (OSC 52)")
