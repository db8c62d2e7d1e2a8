"""The settings of `run`, `chat`, `batch` and `replay`: one table, on its way to the engine."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gguf_runtime.cli import constraints as c
from gguf_runtime.cli import options as o
from gguf_runtime.cli.groups import COMMAND_LINE, Group
from gguf_runtime.cli.samplers import Samplers
from gguf_runtime.cli.samplers import asked as more_sampling
from gguf_runtime.cli.values import UsageError, read
from gguf_runtime.hub.near import suggestion

# Options of `Model.stream` by the same name; None means that nobody asked.
_SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty", "repeat_last_n", "seed"),
)
_ANSWER = ("max_tokens", "max_time", "on_overflow", "think_budget")
_MACHINE = ("threads", "context", "cache_type", "precision", "max_memory", "nice", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Samplers):
    """How tokens are computed and chosen; None where nobody asked."""

    temperature: o.Temperature = None
    top_k: o.TopK = None
    top_p: o.TopP = None
    min_p: o.MinP = None
    repeat_penalty: o.RepeatPenalty = None
    presence_penalty: o.PresencePenalty = None
    frequency_penalty: o.FrequencyPenalty = None
    repeat_last_n: o.RepeatLastN = None
    seed: o.Seed = None
    threads: o.Threads = None
    context: o.Context = None
    cache_type: o.CacheTypeOption = None
    precision: o.PrecisionOption = None
    max_memory: o.MaxMemory = None
    pack_cache: o.PackCache = False
    nice: o.Nice = None
    offline: o.Offline = False
    no_speculate: o.NoSpeculate = False

    def machine(self) -> dict[str, Any]:
        """What was asked of the machine, as `load` takes it."""
        asked = {k: getattr(self, k) for k in _MACHINE}
        given = {k: v for k, v in asked.items() if v is not None}
        if self.pack_cache:
            given["pack_cache"] = True
        return given | {"offline": self.offline}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Choice):
    """What is asked of an answer and of the machine; None where nobody asked."""

    system: o.System = None
    max_tokens: o.MaxTokens = None
    max_time: o.MaxTime = None
    stop: o.Stop = None
    stop_id: o.StopId = None
    stop_on_loop: o.StopOnLoop = False
    on_overflow: o.OnOverflow = None
    think: o.Think = None
    think_budget: o.ThinkBudget = None
    show_thinking: o.ShowThinking = False
    template: o.Template = None
    template_arg: o.TemplateArg = None
    schema: c.Schema = None
    regex: c.Regex = None
    grammar: c.Grammar = None
    choice: c.Choice = None
    choices: c.Choices = None
    show_settings: o.ShowSettings = False

    def request(self) -> dict[str, Any]:
        """What was asked of an answer, as `Model.stream` and `Chat.stream` take it."""
        if self.stop and "" in self.stop:
            raise UsageError("--stop: the text is empty")
        asked = {k: getattr(self, k) for k in (*_SAMPLING, *_ANSWER)}
        asked["stop_on_loop"] = self.stop_on_loop or None
        asked["think"] = {"on": True, "off": False}.get(self.think or "")
        asked["template_args"] = dict(map(_variable, self.template_arg or ())) or None
        asked["stop"] = list(self.stop) if self.stop else None
        asked["stop_ids"] = list(self.stop_id) if self.stop_id else None
        asked["speculate"] = False if self.no_speculate else None
        asked |= more_sampling(self)
        asked |= c.asked(**self._constraints())
        return {k: v for k, v in asked.items() if v is not None}

    def _constraints(self) -> dict[str, Any]:
        """Those of the first place that gives one: a line of a batch, the command line, …"""
        given = {k: getattr(self, k) for k in c.NAMES}
        rank = {k: _rank(self.origins.get(k, "")) for k, v in given.items() if v}
        return {
            k: v if rank.get(k) == max(rank.values(), default=0) else None for k, v in given.items()
        }

    def machine(self) -> dict[str, Any]:
        """What was asked of the machine and the model, as `load` takes it."""
        given = {} if self.template is None else {"template": self.template}
        return Choice.machine(self) | given

    def gave(self, name: str) -> bool:
        """Whether the command line itself gave a setting."""
        return self.origins.get(name) == COMMAND_LINE

    def having(self, values: Mapping[str, Any], origin: str) -> Settings:
        """With other values, given by long names as on the command line or in Python.

        Values are words or what JSON has; UsageError names one that is unknown or wrong.
        """
        known, found = table(), {}
        for name, value in values.items():
            key = name.replace("-", "_")
            if key not in known:
                near = suggestion(key, list(known))
                hint = [f"did you mean {near}?"] if near else []
                raise UsageError(f"no setting {name!r}", *hint)
            if key == "schema" and isinstance(value, dict):  # a line of a batch brings it as it is
                value = json.dumps(value)
            found[key] = read(value, known[key], name)
        origins = self.origins | dict.fromkeys(found, origin)
        return replace(self, **found, origins=origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Group):
    """How a prompt is read."""

    raw: o.Raw = False
    no_bos: o.NoBos = False
    special: o.Special = False
    escape: o.Escape = False

    def request(self) -> dict[str, Any]:
        """What `Model.stream` takes; UsageError where options exclude each other."""
        if not self.raw and (self.no_bos or self.special):
            raise UsageError("--no-bos and --special need --raw")
        asked = {"raw": self.raw, "special": self.special}
        return {k: v for k, v in asked.items() if v} | ({"bos": False} if self.no_bos else {})


def _variable(text: str) -> tuple[str, Any]:
    """KEY=JSON."""
    name, equals, value = text.partition("=")
    try:
        if not (equals and name):
            raise ValueError
        return name, json.loads(value)
    except (ValueError, RecursionError):
        raise UsageError(
            "--template-arg: not KEY=JSON",
            f"expected enable_thinking=false or name='\"text\"', got {text!r}",
        ) from None


def _rank(origin: str) -> int:
    """What comes first has the highest."""
    if origin == COMMAND_LINE:
        return 2
    return 0 if origin == "config.toml" else 1 if origin.startswith("environment") else 3


@functools.cache
def table() -> dict[str, Any]:
    """Setting -> typer's parameter, which knows type and range."""
    from gguf_runtime.cli import parse

    def body(settings: Settings) -> None:
        """Take the settings."""

    body.__annotations__["settings"] = Settings
    return {str(p.name): p for p in parse.parameters(body) if p.name != "show_settings"}
