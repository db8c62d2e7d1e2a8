"""A turn: a message goes in, the answer is shown as it comes, and what was said is saved.

Ctrl-C ends the answer and nothing else. The message is saved before the answer begins, the answer
when the line for the next message appears.
"""

from __future__ import annotations

import time
from typing import Any

from gguf_runtime.cli.talk import calls
from gguf_runtime.cli.talk.keyboard import Quiet, Stoppable
from gguf_runtime.cli.talk.markdown import Markdown, Plain
from gguf_runtime.cli.talk.talk import Talk
from gguf_runtime.cli.terminal import clean
from gguf_runtime.errors import RequestError

ROOM = 0.25  # of the context, that is left for an answer when turns are dropped


def say(talk: Talk, text: str) -> None:
    """One turn; when a person is there, Ctrl-C or a refusal ends the turn alone."""
    whole = "\n\n".join([*(t for _, t in talk.files), text] if text else [t for _, t in talk.files])
    if not talk.lines.interactive:
        _piped(talk, whole)
        return
    files, talk.files = talk.files, []
    try:
        while not _answer(talk, whole):
            if not _make_room(talk, whole):
                talk.files, talk.default = files, text
                return
    except RequestError as e:
        talk.terminal.error(e.lines())
        talk.files, talk.default = files, text
    finally:
        talk.save()


def _piped(talk: Talk, text: str) -> None:
    """A turn of a pipe: the answer and nothing else."""
    view = Plain(talk.terminal.write)
    with talk.chat.stream(text, events=True, **talk.request) as stream:
        try:
            for kind, piece in stream:
                if kind == "text":
                    view.feed(piece)
                elif kind in ("tool", "result"):
                    calls.show(talk.terminal, kind, piece)
        finally:
            view.end()
            talk.save()
    talk.account(stream.result)


def _answer(talk: Talk, text: str) -> bool:
    """Show the answer; False where the message does not fit any more."""
    terminal = talk.terminal
    talk.save(pending=text)
    before = len(talk.chat.messages)
    with Quiet() as keys:
        try:
            with Stoppable() as ctrl_c:
                try:
                    stream = talk.chat.stream(text, events=True, **talk.request)
                except RequestError as e:
                    if "longer than the context" in e.what:
                        return False
                    raise
                with stream:
                    ctrl_c.watch(stream)
                    show(talk, stream)
        finally:
            terminal.clear()
    talk.default = keys.typed or talk.default
    out = stream.result
    if not ctrl_c.stopped:
        talk.account(out)
    elif len(talk.chat.messages) > before:
        terminal.say("stopped; what was said stays in the conversation")
        talk.account(out)
    else:
        terminal.say("stopped before the message was read; the arrow key brings it back")
    return True


def show(talk: Talk, stream: Any) -> None:
    """Write an answer to the screen as it comes; reasoning is dimmed."""
    terminal = talk.terminal

    def put(text: str) -> None:
        terminal.write(text, styled=True)

    styled = terminal.colors and terminal.out_is_terminal
    thoughts = Markdown(put, styled=False, style="\x1b[2m" if styled else "")
    plain = talk.plain or not terminal.out_is_terminal

    def fresh() -> Plain | Markdown:
        return Plain(terminal.write) if plain else Markdown(put, styled=styled)

    view = fresh()
    thinking = False
    try:
        for kind, piece in stream:
            if thinking and kind != "reasoning":
                thoughts.end()
                thinking = False
            if kind in ("tool", "result"):
                view.end()
                view = fresh()
                calls.show(terminal, kind, piece)
            elif kind == "text":
                view.feed(piece if plain else clean(piece))
            elif kind == "reasoning" and terminal.out_is_terminal:
                thinking = True
                thoughts.feed(clean(piece))
    finally:
        if thinking:
            thoughts.end()
        view.end()


def reread(talk: Talk) -> None:
    """Read an old conversation again, saying so; Ctrl-C leaves it to the next message."""
    n = talk.tokens()
    if not n:
        return
    begin = time.monotonic()
    talk.terminal.progress("reading", 0, n)
    with Quiet() as keys:
        try:
            out = talk.chat.read(**talk.request)
        except KeyboardInterrupt as e:
            if type(e) is not KeyboardInterrupt:
                raise
            talk.terminal.say("stopped; the rest is read with the next message")
            return
        except RequestError as e:
            talk.terminal.error(e.lines())
            return
        finally:
            talk.terminal.clear()
            talk.default = keys.typed or talk.default
    usage = out.usage
    new = usage.prompt - usage.cached
    talk.read += new
    known = f", {usage.cached:,} were known" if usage.cached else ""
    talk.terminal.dim(
        f"read the conversation again: {new:,} tokens in {time.monotonic() - begin:.1f} s{known}"
    )


def _make_room(talk: Talk, text: str) -> bool:
    """Ask whether the oldest turns shall go, for a message that does not fit; whether they went."""
    terminal, limit = talk.terminal, talk.model.context
    messages = talk.chat.messages
    begins = [k for k, m in enumerate(messages) if m["role"] == "user"]
    new = len(talk.model.tokenize(text))
    for k in begins[1:] + ([len(messages)] if begins else []):
        left = messages[: begins[0]] + messages[k:]
        size = _size(talk, left)
        if size + new <= limit * (1 - ROOM):
            n = sum(m["role"] == "user" for m in messages[:k])
            words = f"drop the {n} oldest turns" if n > 1 else "drop the oldest turn"
            terminal.say(f"the message does not fit into the context of {limit:,} tokens")
            terminal.ask(f"{words} ({talk.tokens() - size:,} tokens) and send it? [y/N] ")
            if not agreed():
                terminal.say("nothing was dropped; /clear begins anew, /undo takes turns back")
                return False
            messages[begins[0] : k] = []
            return True
    terminal.error(
        [
            "the message is longer than the context",
            f"expected at most {limit:,} tokens, got {new:,}",
            f"a larger one: leave, then gguf-runtime chat {talk.name} --continue -c {2 * limit}",
        ]
    )
    return False


def _size(talk: Talk, messages: list[dict[str, Any]]) -> int:
    return int(talk.model.chat(messages=messages).tokens)


def agreed() -> bool:
    """Whether the person says yes."""
    try:
        return input().strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt) as e:
        if isinstance(e, KeyboardInterrupt) and type(e) is not KeyboardInterrupt:
            raise
        return False
