"""`--show-settings`: every setting in effect with where it comes from; nothing is loaded or answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from gguf_runtime.cli import config
from gguf_runtime.cli.groups import ORIGINS
from gguf_runtime.cli.load import check_isa, parse_context, parse_size
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.settings import Settings
from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.errors import ExitCode
from gguf_runtime.sampling import RANGES, Sampling

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

BUILT_IN, MODEL_FILE, MACHINE = "built-in", "model file", "this machine"
DEFAULTS = {"on_overflow": "stop", "think": "auto"}  # of settings that are None where nobody asked
HIDDEN = (ORIGINS, "show_settings")


class Effective(NamedTuple):
    """A setting in effect; value None: none, origin as `--show-settings` prints it."""

    value: Any
    origin: str


def show(
    terminal: Terminal, model: str, settings: Settings, *, raw: bool = False, as_json: bool = False
) -> ExitCode:
    """Print the table on stdout."""
    rows = effective(model, settings, raw=raw)
    if as_json:
        facts = {k: {"value": x.value, "origin": x.origin} for k, x in rows.items()}
        terminal.line(dumps({"model": model, "settings": facts}))
        return ExitCode.DONE
    names = [k.replace("_", "-") for k in rows]
    values = [_words(x.value) for x in rows.values()]
    left, middle = max(map(len, names)), min(max(map(len, values)), 40)
    for name, value, row in zip(names, values, rows.values(), strict=True):
        terminal.line(f"{name:<{left}}  {value:<{middle}}  {row.origin}")
    return ExitCode.DONE


def effective(model: str, settings: Settings, *, raw: bool = False) -> dict[str, Effective]:
    """Setting -> value and origin, as a request on this model would have them.

    Raises:
        ModelError, FileError: the model cannot be read. MachineError: it does not fit.
    """
    from gguf_runtime.engine.request import RAW_TOKENS, recommended
    from gguf_runtime.gguf import open_file
    from gguf_runtime.hub.resolve import resolve

    check_isa()
    with open_file(resolve(model)) as file:
        advice = recommended(file.metadata)
        own = bool(file.metadata.get("tokenizer.chat_template"))
        templated = (own or settings.template is not None) and not raw
        found = {f.name: _plain(f.name, f.default, settings) for f in fields(Settings)}
        found |= _sampling(settings, advice)
        found |= _machine(file, model, settings)
    if settings.max_tokens is None:
        found["max_tokens"] = Effective(-1 if templated else RAW_TOKENS, BUILT_IN)
    return {k: x for k, x in found.items() if k not in HIDDEN}


def _plain(name: str, default: Any, settings: Settings) -> Effective:
    value = getattr(settings, name)
    if value is None:
        value = DEFAULTS.get(name)
    if isinstance(value, list | tuple):
        value = list(value) or None
    return Effective(value, _origin(settings, name) or BUILT_IN)


def _sampling(settings: Settings, advice: Mapping[str, float]) -> dict[str, Effective]:
    asked = {k: getattr(settings, k) for k in RANGES if hasattr(settings, k)}
    values: dict[str, Any] = Sampling(**asked, recommended=advice).as_dict()
    values["seed"] = settings.seed
    found = {}
    for name, value in values.items():
        origin = _origin(settings, name)
        if origin is None:
            origin = MODEL_FILE if advice.get(name) == value else BUILT_IN
        found[name] = Effective(value, origin)
    if settings.seed is None:
        found["seed"] = Effective("random", BUILT_IN)
    return found


def _machine(file: GGUFFile, model: str, settings: Settings) -> dict[str, Effective]:
    from gguf_runtime.engine.model import Model
    from gguf_runtime.engine.sizing import default_threads

    given = {k: getattr(settings, k) for k in ("cache_type", "precision")}
    kinds = {"cache_type": given["cache_type"] or "f16", "precision": given["precision"] or "int8"}
    threads = default_threads(settings.threads)
    memory = parse_size(settings.max_memory)
    context: Any = parse_context(settings.context)
    more: dict[str, Any] = {"max_memory": memory, "pack_cache": settings.pack_cache}
    plan = Model.plan(model, context, threads=threads, **more | kinds)
    trained = file.manifest().n_ctx
    found = {k: Effective(v, _origin(settings, k) or BUILT_IN) for k, v in kinds.items()}
    found["threads"] = Effective(threads, _origin(settings, "threads") or MACHINE)
    fits = MODEL_FILE if plan.context == trained else f"{MACHINE}: half of the free memory"
    found["context"] = Effective(plan.context, _origin(settings, "context") or fits)
    return found


def _origin(settings: Settings, name: str) -> str | None:
    origin = settings.origins.get(name)
    return str(config.config_path()) if origin == config.NAME else origin


def _words(value: Any) -> str:
    if value is None or value is False:
        return "no" if value is False else "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, list):
        return " ".join(dumps(v) for v in value)
    return "yes" if value is True else str(value)
