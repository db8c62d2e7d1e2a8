"""From what a caller gives, text or messages, to the ids that the model reads.

Scaffolding comes from the template and may hold control tokens; content comes from people and never can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Notice
from gguf_runtime.engine.overflow import Trimmer
from gguf_runtime.engine.reply import Style, opened, style_of
from gguf_runtime.engine.turn import NO_SWITCH, NOTHING, RAW, Turn
from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.template import Template

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile
    from gguf_runtime.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
Segment = tuple[str, bool]

NO_CONVERSATION = (
    "this model has no chat template, so it takes no messages",
    "name one with --template, such as chatml, or complete a text: gguf-runtime run MODEL --raw TEXT",
)
NO_TEMPLATE = Notice(
    "no-template", "this model has no chat template; the prompt is continued as plain text"
)


def own_source(file: GGUFFile) -> str | None:
    """The source of the file's chat template, None where it has none."""
    source = file.metadata.get("tokenizer.chat_template")
    if isinstance(source, bytes):
        source = source.decode("utf-8", "replace")
    return source if isinstance(source, str) and source else None


def read_template(
    file: GGUFFile, tokenizer: Tokenizer, source: str | None = None
) -> Template | None:
    """A chat template, the file's own unless another is given; None where there is none."""
    source = source or own_source(file)
    if source is None:
        return None

    def text(i: int | None) -> str:
        return "" if i is None else tokenizer.piece(i, special=True).decode("utf-8", "replace")

    eos = file.metadata.get("tokenizer.ggml.eos_token_id")
    return Template(
        source, text(tokenizer.bos_id), text(int(eos) if isinstance(eos, int) else None)
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request reads.

    templated  a template made it, so the answer is a turn
    style      how the answer is read, None where it is nothing but text
    notices    what has to be said about it
    """

    ids: list[int]
    templated: bool
    style: Style | None = None
    notices: tuple[Notice, ...] = ()


class Prompter:
    """Makes prompts for one model."""

    def __init__(
        self, tokenizer: Tokenizer, template: Template | None, stop: tuple[str, ...] = ()
    ) -> None:
        self.tokenizer, self.template = tokenizer, template
        self.stop = stop  # texts that end a turn, where the template's are no tokens of the model

    def ids(
        self,
        prompt: str | bytes | None,
        messages: Sequence[Message] | None,
        *,
        raw: bool,
        bos: bool,
        special: bool,
        turn: Turn = NOTHING,
    ) -> Prompt:
        """What a request reads."""
        if (prompt is None) == (messages is None):
            raise RequestError(
                "give either a prompt or messages", got="neither" if prompt is None else "both"
            )
        if messages is not None:
            if raw:
                raise RequestError("messages need the template, which raw leaves out")
            return self._templated(messages, turn)
        if not isinstance(prompt, str | bytes):
            raise RequestError("a prompt is a text", got=show(prompt))
        if raw or self.template is None:
            notices = () if raw else (NO_TEMPLATE,)
            ids = self.plain(prompt, bos=bos, special=special)
            return Prompt(ids, False, None, (*notices, *([RAW] if turn.asks else ())))
        try:
            text = prompt.decode() if isinstance(prompt, bytes) else prompt
        except UnicodeDecodeError as e:
            raise RequestError(
                f"byte {e.start:,} of the prompt is not UTF-8",
                hint="a chat template takes text; raw=True continues any bytes",
            ) from None
        return self._templated([{"role": "user", "content": text}], turn)

    def _templated(self, messages: Sequence[Message], turn: Turn) -> Prompt:
        segments, style, notices = self.conversation(messages, turn)
        return Prompt(self.encode(segments), True, style, notices)

    def conversation(
        self, messages: Sequence[Message], turn: Turn = NOTHING
    ) -> tuple[list[Segment], Style | None, tuple[Notice, ...]]:
        """A rendered conversation up to the answer, how the answer is read, and what has to be said."""
        template = self.refuse_without_template()
        form = template.format
        segments = self.segments(messages, **turn.variables(template, form))
        notices = turn.notices(template, form)
        rendered = "".join(text for text, _ in segments)
        if NO_SWITCH in notices:
            block = opened(form, rendered)
            empty = block.open + "\n" if not rendered.rstrip().endswith(block.open) else ""
            segments = [*segments, (empty + block.forced, True)]
            rendered += empty + block.forced
        return segments, style_of(self.tokenizer, form, rendered, turn.tools, turn.budget), notices

    def fitted(
        self, made: Prompt, messages: Sequence[Message], turn: Turn, limit: int
    ) -> tuple[list[int], tuple[Notice, ...], Trimmer]:
        """A prompt that the context holds, what has to be said about it, and what shortens it further.

        Raises:
            RequestError: it cannot be made short enough.
        """
        if made.templated:

            def render(kept: Sequence[Message]) -> list[int]:
                return self.encode(self.conversation(kept, turn)[0])

            trimmer = Trimmer(made.ids, limit, messages, render)
        else:
            keep = int(self.tokenizer.bos_id is not None and made.ids[0] == self.tokenizer.bos_id)
            trimmer = Trimmer(made.ids, limit, keep=keep)
        ids, said = trimmer.fit(), tuple(trimmer.notices)
        trimmer.notices.clear()
        return ids, (*made.notices, *said), trimmer

    def plain(self, text: str | bytes, *, bos: bool = True, special: bool = False) -> list[int]:
        """Text to be continued; `bos` adds what the file puts before a text."""
        ids = self.tokenizer.encode(text, parse_special=special)
        return self._some(self._begin(ids) if bos else ids)

    def segments(self, messages: Sequence[Message], **options: Any) -> list[Segment]:
        """The rendered conversation."""
        listed: Any = messages
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence):
            raise RequestError("messages are a list of role and content", got=show(messages))
        if not messages:
            raise RequestError("there are no messages")
        for k, m in enumerate(listed):
            if not isinstance(m, Mapping) or not isinstance(m.get("role"), str):
                raise RequestError(
                    f"message {k} has no role", expected="a role and content", got=show(m)
                )
        return self.refuse_without_template().segments(messages, self.tokenizer, **options)

    def refuse_without_template(self) -> Template:
        """The template; RequestError where the file has none."""
        if self.template is None:
            raise RequestError(NO_CONVERSATION[0], hint=NO_CONVERSATION[1])
        return self.template

    def encode(self, segments: Sequence[Segment], *, start: bool = True) -> list[int]:
        """Ids of a rendered conversation, or (start=False) of what follows in one.

        The start token is added once, where neither the text nor the template has it.
        """
        ids = self.tokenizer.encode_segments(segments)
        return self._some(self._begin(ids) if start else ids)

    def _begin(self, ids: list[int]) -> list[int]:
        """With the start token, where the file wants one and none is there."""
        bos = self.tokenizer.bos_id
        wanted = self.tokenizer.add_bos and bos is not None and ids[:1] != [bos]
        return [bos, *ids] if wanted and bos is not None else ids

    def _some(self, ids: list[int]) -> list[int]:
        if not ids:
            raise RequestError("the prompt is empty", hint="give some text")
        return ids


def after(segments: Sequence[Segment], n_chars: int) -> list[Segment]:
    """What is left of segments behind the first n_chars characters."""
    out: list[Segment] = []
    for text, scaffolding in segments:
        if n_chars >= len(text):
            n_chars -= len(text)
            continue
        out.append((text[n_chars:], scaffolding))
        n_chars = 0
    return out
