"""Which tags a model writes: found out from its chat template, or named.

A template shows the model its own earlier answers, so it holds the tags that the model was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.reply import calls
from gguf_runtime.text.reply.calls import Give, Tools
from gguf_runtime.text.reply.source import Reading, Source

Reader = Callable[[Source, Give, Tools], Reading[None]]


@dataclass(frozen=True, slots=True)
class Think:
    """A block of reasoning.

    forced   what ends it when its budget is used up
    channel  the first line of the block is its name
    """

    open: str
    close: str
    forced: str
    channel: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """How a model marks what is no plain text.

    calls    readers of calls, by the word that begins one
    dropped  words around an answer that say nothing
    answer   words around an answer that follows reasoning
    object   a reply that begins with a JSON object may be a call
    flow     how the reply as a whole is built
    """

    think: tuple[Think, ...] = ()
    calls: Mapping[str, Reader] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    answer: tuple[str, str] | None = None
    object: bool = False
    flow: Literal["plain", "harmony", "functionary"] = "plain"

    @property
    def reasons(self) -> bool:
        """Whether the model may reason before it answers."""
        return bool(self.think)

    @property
    def switches(self) -> tuple[str, ...]:
        """Words that change what the text behind them is."""
        words = [w for t in self.think for w in (t.open, t.close)]
        words += [*self.calls, *self.dropped, *(self.answer or ())]
        if self.flow == "harmony":
            words += HARMONY_TAGS
        return tuple(dict.fromkeys(words))


HARMONY_TAGS = (
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
)

_PLAIN = Think("<think>", "</think>", "\n</think>\n\n")
_THINK = (
    _PLAIN,
    Think("[THINK]", "[/THINK]", "[/THINK]"),
    Think("<seed:think>", "</seed:think>", "</seed:think>"),
    Think("<think:opensource>", "</think:opensource>", "</think:opensource>"),
    Think("<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|>"),
    Think("<|channel>", "<channel|>", "<channel|>", channel=True),
    Think("<|inner_prefix|>", "<|inner_suffix|>", "<|inner_suffix|>"),
)
_ANALYSIS = Think(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)


def _plain(reader: Callable[[Source, Give], Reading[None]]) -> Reader:
    """A reader that needs no types."""
    return lambda source, give, tools: reader(source, give)


def _until(closing: str) -> Reader:
    return _plain(partial(calls.closed, closing=closing))


def _functools(source: Source, give: Give, tools: Tools) -> Reading[None]:
    source.at -= 1
    return calls.objects(source, give)


_HERMES: dict[str, Reader] = {"<tool_call>": calls.tool_call}
_FUNCTION: dict[str, Reader] = {"<function=": calls.function}
_CODER: dict[str, Reader] = {**_HERMES, **_FUNCTION}
_GLM: dict[str, Reader] = {"<tool_call>": calls.keys_and_values}
_SEED: dict[str, Reader] = {
    "<seed:tool_call>": partial(calls.wrapped_function, closing="</seed:tool_call>")
}
_DSML = "｜DSML｜"
_INVOKE: dict[str, Reader] = {
    "<minimax:tool_call>": partial(calls.invoke, p="", closing="</minimax:tool_call>")
}
_DEEPSEEK: dict[str, Reader] = {
    "<｜tool▁calls▁begin｜>": _plain(calls.deepseek),
    **{
        f"<{_DSML}{w}>": partial(calls.invoke, p=_DSML, closing=f"</{_DSML}{w}>")
        for w in ("function_calls", "tool_calls")
    },
}
_MISTRAL: dict[str, Reader] = {"[TOOL_CALLS]": _plain(calls.mistral)}
_GRANITE: dict[str, Reader] = {"<|tool_call|>": _plain(calls.objects)}
_COMMAND: dict[str, Reader] = {"<|START_ACTION|>": _until("<|END_ACTION|>")}
_KIMI: dict[str, Reader] = {"<|tool_calls_section_begin|>": _plain(calls.kimi)}
_GEMMA: dict[str, Reader] = {"<|tool_call>": _plain(calls.gemma)}
_LFM: dict[str, Reader] = {
    "<|tool_call_start|>": _plain(partial(calls.python, closing="<|tool_call_end|>"))
}
_LLAMA: dict[str, Reader] = {"<|python_tag|>": _plain(calls.llama)}
_SUFFIX = ":opensource"

# What a template holds, and the calls of a model that was trained with it. Of two readers for one
# word the later counts.
_BY_TEXT: tuple[tuple[str, dict[str, Reader]], ...] = (
    ("<tool_call>", _HERMES),
    ("<function=", _FUNCTION),
    ("<arg_key>", _GLM),
    ("<seed:tool_call>", _SEED),
    ("minimax:tool_call", _INVOKE),
    ("<｜tool▁calls▁begin｜>", _DEEPSEEK),
    (_DSML, _DEEPSEEK),
    ("[TOOL_CALLS]", _MISTRAL),
    ("<|tool_call|>", _GRANITE),
    ("<|START_ACTION|>", _COMMAND),
    ("<|tool_calls_section_begin|>", _KIMI),
    ("<|tool_call>", _GEMMA),
    ("<|tool_call_start|>", _LFM),
    ("List of tools: ", _LFM),
    ("<|python_tag|>", _LLAMA),
    ("<tool_calls>", {"<tool_calls>": _until("</tool_calls>")}),
    ("<TOOLCALL>", {"<TOOLCALL>": _until("</TOOLCALL>")}),
    ("functools[", {"functools[": _functools}),
    (
        f"<tool_call{_SUFFIX}>",
        {f"<tool_call{_SUFFIX}>": partial(calls.keys_and_values, suffix=_SUFFIX)},
    ),
)
_RESPONSE = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
_HARMONY = Format(think=(_ANALYSIS,), flow="harmony")
_FUNCTIONARY = Format(flow="functionary")

FAMILIES: dict[str, Format] = {
    "qwen_hermes": Format((_PLAIN,), _HERMES),
    "think": Format(_THINK),
    "qwen3_coder": Format((_PLAIN,), _CODER),
    "llama3": Format((), _LLAMA, object=True),
    "mistral": Format(_THINK[1:2], _MISTRAL),
    "deepseek": Format((_PLAIN,), _DEEPSEEK),
    "gpt_oss": _HARMONY,
    "gemma": Format(_THINK[5:6], _GEMMA),
    "granite": Format((_PLAIN,), {**_GRANITE, **_HERMES}, answer=("<response>", "</response>")),
    "command_r": Format(_THINK[4:5], _COMMAND, dropped=_RESPONSE),
    "functionary": Format((), _FUNCTION, flow="functionary"),
    "glm": Format((_PLAIN,), _GLM),
    "kimi": Format((_PLAIN,), _KIMI),
    "xml_invoke": Format((_PLAIN, _THINK[2]), {**_INVOKE, **_SEED}),
    "pythonic": Format((_PLAIN,), _LFM),
}


def find(template: str) -> Format:
    """The format of a template, or of a family by its name.

    Raises:
        RequestError: a name that is no family.
    """
    if template in FAMILIES:
        return FAMILIES[template]
    if template and not any(c in template for c in "{}<[\n "):
        raise RequestError(
            f"no family of replies is called {show(template)}",
            expected="a chat template, or one of " + ", ".join(sorted(FAMILIES)),
        )
    if all(tag in template for tag in HARMONY_TAGS[:3]):
        return _HARMONY
    if ">>>all" in template or "'>>>' + " in template:
        return _FUNCTIONARY
    found: dict[str, Reader] = {}
    for word, readers in _BY_TEXT:
        if word in template:
            found |= readers
    object_call = '"parameters": dictionary' in template or "<|python_tag|>" in template
    if object_call:
        found |= _LLAMA
    think = tuple(t for t in _THINK if t.close in template or t.open in template)
    answer = ("<response>", "</response>")
    granite = think and "<|start_of_role|>" in template and answer[0] in template
    return Format(
        think,
        found,
        dropped=tuple(w for w in _RESPONSE if w in template),
        answer=answer if granite else None,
        object=object_call,
    )
