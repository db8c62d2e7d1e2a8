"""Chat templates: messages to the text that a model was trained on.

`Template.render` gives that text as transformers does. `Template.segments` gives the same text in
pieces, content that looks like control tokens marked as content, so that no message can open a
turn or end one (`Tokenizer.encode_segments`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.content import Marker, literals

if TYPE_CHECKING:
    import jinja2

    from gguf_runtime.text.reply import Format
    from gguf_runtime.text.tokenizer import Segment, Tokenizer

Message = Mapping[str, Any]

_CONTINUE = "CONTINUE_FINAL_MESSAGE_TAG "


class Template:
    """A chat template, compiled on first use."""

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._compiled: jinja2.Template | None = None

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for a conversation.

        Args:
            messages: mappings with `role` and `content`; what else they hold is the template's.
            tools: JSON schemas of functions; None for none.
            documents: for templates that know them.
            add_generation_prompt: end with the opening of the assistant's turn.
            continue_final_message: leave the last message open instead.
            now: what `strftime_now` sees; default the clock.
            kwargs: further variables of the template, such as `enable_thinking`.

        Raises:
            RequestError: the template refuses the conversation, breaks on it, is no template,
                or takes too long.
        """
        chat = _completed(messages)
        if continue_final_message:
            final = _open_final(chat)
        text = self._render(
            now,
            messages=chat,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            **kwargs,
        )
        return _cut_final(text, final) if continue_final_message else text

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template reads and does not set; empty where it cannot be read."""
        import jinja2
        from jinja2 import meta

        try:
            return frozenset(meta.find_undeclared_variables(_environment().parse(self.source)))
        except (jinja2.TemplateError, RecursionError):
            return frozenset()

    @cached_property
    def format(self) -> Format:
        """How replies of a model with this template are tagged."""
        from gguf_runtime.text.reply.formats import find

        return find(self.source)

    def segments(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        **options: Any,
    ) -> list[Segment]:
        """The same text as (text, is_scaffolding) pieces for `tokenizer.encode_segments`.

        Where a message, a tool or a document holds the text of a control token, or a part of one
        at its edge, a character of it comes as content.
        """
        given = (messages, tools, documents)
        controls = tokenizer.control_texts
        try:
            marker = Marker(controls, (self.source, given), literals(self.source, controls))
            safe = marker.segments(self._render_marked(marker, given, options))
            if not marker.used:
                return safe
            plain = self.render(*given, **options)
            if "".join(text for text, _ in safe) == plain:
                return safe
            # The template looks at what was marked: mark what reads like a control token alone,
            # unless it then makes more control tokens.
            careful = Marker(controls, (self.source, given))
            other = careful.segments(self._render_marked(careful, given, options))
            return other if careful.controls(other) <= careful.controls(safe) else safe
        except RecursionError:
            raise RequestError("the messages are nested too deeply", where="messages") from None

    def _render_marked(self, marker: Marker, given: Any, options: Mapping[str, Any]) -> str:
        messages, tools, documents = given
        marked = [_marked(marker, message) for message in messages]
        return self.render(marked, marker.mark(tools), marker.mark(documents), **options)

    def _render(self, now: datetime | None, **variables: Any) -> str:
        from gguf_runtime.text import limits, sandbox

        deadline = limits.DEADLINE.set(time.monotonic() + limits.MAX_SECONDS)
        clock = sandbox.NOW.set(now)
        try:
            if self._compiled is None:
                self._compiled = _environment().from_string(self.source)
            return self._compiled.render(**variables)
        # Whatever a template raises is its own doing: it may call any method of any value.
        except Exception as e:
            raise _request_error(e) from e
        finally:
            limits.DEADLINE.reset(deadline)
            sandbox.NOW.reset(clock)


@cache
def _environment() -> jinja2.Environment:
    from gguf_runtime.text.sandbox import Environment

    return Environment()


def _request_error(e: Exception) -> RequestError:
    import jinja2

    from gguf_runtime.text.limits import LimitError
    from gguf_runtime.text.sandbox import Refusal

    if isinstance(e, RequestError):
        return e
    if isinstance(e, Refusal):
        return RequestError(f"the chat template refuses: {e.message}", where="messages")
    if isinstance(e, LimitError):
        return RequestError(f"the chat template was stopped: {e}", where="chat template")
    line = e.lineno if isinstance(e, jinja2.TemplateSyntaxError) else _line(e)
    where = f"chat template, line {line}" if line else "chat template"
    what = "no Jinja template" if isinstance(e, SyntaxError) else "the chat template breaks"
    if isinstance(e, jinja2.TemplateSyntaxError):
        what = "the chat template cannot be read"
    return RequestError(f"{what}: {str(e) or type(e).__name__}", where=where)


def _line(e: Exception) -> int | None:
    """The line of the template that raised; jinja rewrites tracebacks to show it."""
    line, tb = None, e.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == "<template>":
            line = tb.tb_lineno
        tb = tb.tb_next
    return line


def _completed(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies, with the two names for reasoning filled from each other as transformers does."""
    chat = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise RequestError("a message is no mapping", where=f"message {i}", got=show(message))
        message = dict(message)
        for name in ("reasoning_content", "thinking", "reasoning"):
            if message.get(name) is not None:
                message["reasoning_content"] = message[name]
                message.setdefault("thinking", message[name])
                break
        chat.append(message)
    return chat


def _marked(marker: Marker, message: Message) -> Message:
    """A message with its texts marked; a known role is scaffolding."""
    if not isinstance(message, Mapping):
        return message
    marked: dict[str, Any] = marker.mark(message)
    if message.get("role") in ("system", "developer", "user", "assistant", "tool", "function"):
        marked["role"] = message["role"]
    return marked


def _open_final(chat: list[dict[str, Any]]) -> str:
    """Tags the last message's text, in place; returns the text."""
    content = chat[-1].get("content") if chat else None
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUE
        return content
    if isinstance(content, list | tuple):
        chat[-1]["content"] = content = copy.deepcopy(list(content))
        for block in reversed(content):
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                text: str = block["text"]
                block["text"] = text + _CONTINUE
                return text
    raise RequestError("the last message has no text to continue", where="messages")


def _cut_final(text: str, final: str) -> str:
    at = text.rfind(_CONTINUE.strip())
    if at < 0 or final.strip() not in text:
        raise RequestError(
            "the chat template changes the last message, so it cannot be continued",
            where="messages",
        )
    # A template that trims the message has trimmed the tag's own blank too.
    return text[:at] if text.startswith(_CONTINUE, at) else text[:at].rstrip()
