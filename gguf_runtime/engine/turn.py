"""How a conversation is put to a model: with or without reasoning, with which tools and variables.

Templates differ in how they switch reasoning off: a variable, a level, or not at all. Then an empty
block of reasoning stands before the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.checks import whole
from gguf_runtime.engine.completion import Notice
from gguf_runtime.errors import RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.text.reply import Format
    from gguf_runtime.text.template import Template

OPTIONS = ("think", "think_budget", "template_args", "tools")

NO_REASONING = Notice(
    "no-reasoning", "this model's chat template knows no reasoning; think has no effect"
)
NO_BUDGET = Notice(
    "no-reasoning", "this model's chat template knows no reasoning; think_budget has no effect"
)
NO_SWITCH = Notice(
    "no-think-switch",
    "this model's chat template has no switch for reasoning; an empty block of reasoning stands"
    " before the answer",
)
LEAST = Notice(
    "no-think-switch", "this model's reasoning cannot be switched off; it is set to the least level"
)
NO_TOOLS = Notice(
    "no-tools", "this model's chat template knows no tools; the model is not told of any"
)
RAW = Notice("raw", "without a chat template there is no reasoning and there are no tools")

SWITCHES = ("enable_thinking", "thinking")
LEVEL = "reasoning_effort"
OWN = ("messages", "documents", "add_generation_prompt", "bos_token", "eos_token")


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked of the template, and of the reply's reading.

    think   None: as the template does by itself
    budget  tokens of reasoning at most
    args    variables for the template
    tools   JSON schemas; what the model may call
    """

    think: bool | None = None
    budget: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls,
        think: Any = None,
        think_budget: Any = None,
        template_args: Any = None,
        tools: Any = None,
    ) -> Turn:
        """Options, checked; RequestError names the one that is wrong."""
        if think is not None and not isinstance(think, bool):
            raise RequestError("think is True, False or None", got=show(think))
        if think_budget is not None:
            think_budget = whole("think_budget is outside its range", think_budget, 0)
        args = template_args if template_args is not None else {}
        if not isinstance(args, Mapping) or not all(isinstance(k, str) for k in args):
            raise RequestError("template_args are names and values", got=show(template_args))
        own = [k for k in args if k in OWN]
        if own:
            raise RequestError(f"template_args cannot set {own[0]}", hint="it is made here")
        return cls(think, think_budget, dict(args), checked_tools(tools or ()))

    @property
    def asks(self) -> bool:
        """Whether anything is asked for."""
        return self != NOTHING

    def variables(self, template: Template, form: Format) -> dict[str, Any]:
        """What the template is given."""
        found: dict[str, Any] = {"tools": list(self.tools)} if self.tools else {}
        if self.think is not None:
            names = template.variables
            found |= dict.fromkeys((n for n in SWITCHES if n in names), self.think)
            if len(found) == bool(self.tools) and LEVEL in names:
                least = "no_think" if "no_think" in template.source else "low"
                found[LEVEL] = "high" if self.think else least
        return {**found, **self.args}

    def notices(self, template: Template, form: Format) -> tuple[Notice, ...]:
        """What has to be said about it."""
        found = []
        names = template.variables if self.think is not None or self.tools else frozenset()
        if self.tools and "tools" not in names:
            found.append(NO_TOOLS)
        if self.think is not None and not any(n in names for n in SWITCHES):
            if LEVEL in names:
                if not self.think and "no_think" not in template.source:
                    found.append(LEAST)
            elif not form.reasons:
                found.append(NO_REASONING)
            elif not self.think:
                found.append(NO_SWITCH)
        if self.budget is not None and not form.reasons:
            found.append(NO_BUDGET)
        return tuple(found)


NOTHING = Turn()


def checked_tools(tools: Any) -> tuple[Any, ...]:
    """Schemas of tools, as the wire has them."""
    if not tools and isinstance(tools, list | tuple):
        return ()
    from gguf_runtime.engine.tools import tools_of

    return tuple(tool.schema for tool in tools_of(tools))
