"""Replies that are several messages, each with a header that says for whom it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gguf_runtime.text.reply.calls import from_object
from gguf_runtime.text.reply.source import Reading, Unreadable, tail
from gguf_runtime.text.reply.values import json_value

if TYPE_CHECKING:
    from gguf_runtime.text.reply.parser import ReplyParser

PARAGRAPH = "\n\n"  # between messages

_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_NEXT = ">>>"


def harmony(parser: ReplyParser, tools: bool) -> Reading[None]:
    """gpt-oss: analysis is reasoning, what has a recipient is a call, the rest is content.

    A call that cannot be read is not shown: its channel is not for the user.
    """
    source = parser.source
    message = parser.tag("<|message|>")
    ends = [parser.tag(word) for word in ("<|end|>", "<|return|>", "<|call|>")]
    tags = (parser.tag("<|start|>"), parser.tag("<|channel|>"), message, *ends)
    kind = "think" if parser.in_reasoning else "say"
    while True:
        found = [(i, tag) for tag in tags if (i := source.text.find(tag, source.at)) >= 0]
        end, tag = min(found) if found else (tail(source.text, tags), "")
        if source.ended and not tag:
            end = len(source.text)
        if end > source.at and kind != "hide":
            (parser.think if kind == "think" else parser.say)(source.text[source.at : end])
        source.at = max(end, source.at) + len(tag)
        if not tag:
            if source.ended:
                return
            source.cut()
            yield
        elif tag in ends:
            kind, parser.in_reasoning = "say", False
        elif tag != message:
            try:
                header, _ = yield from source.until(message)
            except Unreadable:
                return  # cut within a header: nothing was said
            header = parser.plain(tag + header)
            recipient, named = _RECIPIENT.search(header), _CHANNEL.search(header)
            kind = "think" if named and named[1] == "analysis" else "hide" if recipient else "say"
            parser.in_reasoning = kind == "think"
            (parser.thought if kind == "think" else parser.said).skip(PARAGRAPH)
            if recipient and recipient[1].startswith("functions.") and tools:
                kind, parser.in_reasoning = "hide", False
                try:
                    value = yield from json_value(source)
                    name = recipient[1].removeprefix("functions.")
                    parser.give(from_object({"name": name, "arguments": value}))
                except Unreadable:
                    parser.unreadable += 1


def functionary(parser: ReplyParser, tools: bool) -> Reading[None]:
    """functionary v3.2: `all` and a line's end before content, a tool's name before its arguments.

    The prompt ends with >>> already; further messages begin with it.
    """
    source = parser.source
    yield from source.comes(_NEXT)
    if not (yield from _message(parser, tools, 0)) and parser.format.calls:
        yield from parser.tagged(tools)  # no such messages: v3.1
        return
    while True:
        at = source.text.find(_NEXT, source.at)
        end = at if at >= 0 else tail(source.text, (_NEXT,))
        if source.ended and at < 0:
            end = len(source.text)
        if end > source.at:
            parser.say(source.text[source.at : end])
        source.at = max(end, source.at)
        if at >= 0:
            source.at += len(_NEXT)
            yield from _message(parser, tools, at)
        elif source.ended:
            return
        else:
            source.cut()
            yield


def _message(parser: ReplyParser, tools: bool, begin: int) -> Reading[bool]:
    """A header and, if it names a tool, the call; what is neither is content from `begin` on."""
    source = parser.source
    first = source.at
    while (c := (yield from source.peek())) and (c.isalnum() or c in "_.-"):
        source.at += 1
    name = source.text[first : source.at]
    if name and c == "\n":
        source.at += 1
        if name == "all":
            parser.said.skip(PARAGRAPH)
            return True
        if tools:
            try:
                value = yield from json_value(source)
                parser.give(from_object({"name": name, "arguments": value}))
                return True
            except Unreadable:
                parser.unreadable += 1
    parser.say(source.text[begin:first])
    source.at = first
    return False
