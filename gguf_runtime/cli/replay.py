"""`replay`: repeat a recorded run and say whether the same came out, or why not."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gguf_runtime.cli import record as records
from gguf_runtime.cli.groups import COMMAND_LINE
from gguf_runtime.cli.load import load, pass_on
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.settings import Choice, Settings
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.errors import ExitCode, GGUFRuntimeError, show

if TYPE_CHECKING:
    from gguf_runtime import Model


_OPTION = {"stop_ids": "stop_id", "choices": "choice"}  # engine's name -> option's name


def replay(
    record: Annotated[
        str, typer.Argument(metavar="RECORD", help="a file that `run --record` has written")
    ],
    choice: Choice,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            rich_help_panel="machine",
            help="another model, or where the recorded one is now",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="output", help="one JSON object")
    ] = False,
) -> ExitCode:
    """Repeat a recorded run and say whether the same tokens came out.

    Settings are those of the record; options change them one by one, to find out which makes a
    difference. The exit code is 6 where a token differs: then the first such token is shown with the
    five best of both runs, the margin between the two tokens, and the settings that differ.
    """
    terminal = current()
    told = records.read(record)
    recorded = _settings(told)
    asked = {
        k: getattr(choice, k) for k, origin in choice.origins.items() if origin == COMMAND_LINE
    }
    chosen = recorded.having(asked, COMMAND_LINE)
    with load(terminal, model or _name(told), **chosen.machine()) as m:
        out = _again(m, told, chosen)
        pass_on(terminal, out.notices)
        facts = _compare(m, told, out, chosen)
    if as_json:
        terminal.line(dumps(facts))
    else:
        _describe(terminal, facts)
    return ExitCode.DONE if facts["same"] else ExitCode.NOT_CLEAN


def _settings(told: dict[str, Any]) -> Settings:
    known = {f.name for f in fields(Settings)}
    machine = {k: v for k, v in told["machine"].items() if k in known}
    request = {_OPTION.get(k, k): v for k, v in told["request"].items()}
    sampling = {k: v for k, v in told["sampling"].items() if k in known}
    return Settings().having(machine | sampling | request, "record")


def _name(told: dict[str, Any]) -> str:
    """The recorded file if it is there, else the name."""
    from pathlib import Path

    path = told["model"].get("path")
    return str(path) if path and Path(path).exists() else str(told["model"].get("name"))


def _again(m: Model, told: dict[str, Any], settings: Settings) -> Any:
    """The Completion of the same request; one token more where the record ended by itself."""
    n = len(told["ids"]) + (
        told["finish_reason"] in ("stop", "tool_calls") and told["stop"] is None
    )
    options = settings.request() | {"max_tokens": n, "sample": told["sampling"].get("sample", 0)}
    options["style"] = _style(m, told["prompt_ids"], options.pop("think_budget", None))
    session = m.session()
    stream = m.start(
        session,
        told["prompt_ids"],
        m.request(templated=True, **options),
        lambda out: session.close(keep=False),
    )
    for _ in stream:
        pass
    return stream.result


def _style(m: Model, ids: list[int], budget: int | None) -> Any:
    """How the reply is read: stops look at its text alone, a budget at its reasoning."""
    template = m.prompter.template
    if template is None:
        return None
    from gguf_runtime.engine.reply import style_of

    rendered = b"".join(m.pieces(ids)).decode("utf-8", "replace")
    return style_of(m.tokenizer, template.format, rendered, (), budget)


def _compare(m: Model, told: dict[str, Any], out: Any, settings: Settings) -> dict[str, Any]:
    old, new = told["ids"], list(out.ids)
    same = old == new
    at = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    if at is None and not same:
        at = min(len(old), len(new))
    facts: dict[str, Any] = {
        "same": same,
        "tokens": len(old) if at is None else at,
        "of": len(old),
        "settings": _differences(m, told, out),
    }
    if at is not None:
        facts["first"] = _difference(m, told, new, at)
    return facts


def _difference(m: Model, told: dict[str, Any], new: list[int], at: int) -> dict[str, Any]:
    """The first token that differs; None stands for the end of the answer."""
    old = told["ids"]
    was = old[at] if at < len(old) else None
    came = new[at] if at < len(new) else None
    before = [*told["prompt_ids"], *old[:at]]
    chosen = [i for i in (was, came) if i is not None]
    now = records.top(m.logits(before, positions="last")[0], chosen)
    then = [(int(i), float(x)) for i, x in told["top"][at]] if at < len(told["top"]) else []
    return {
        "at": at,
        "recorded": _run(m, was, then),
        "replayed": _run(m, came, now),
        "margin": {"recorded": _margin(then, was, came), "replayed": _margin(now, was, came)},
    }


def _run(m: Model, token: int | None, row: records.Top) -> dict[str, Any]:
    best = [_token(m, i) | {"logit": x} for i, x in row[: records.BEST]]
    return _token(m, token) | {"top": best}


def _margin(row: records.Top, recorded: int | None, replayed: int | None) -> float | None:
    """By how much the recorded token is ahead of the replayed one; None where that is unknown."""
    logits: dict[int | None, float] = dict(row)
    if recorded not in logits or replayed not in logits:
        return None
    return logits[recorded] - logits[replayed]


def _token(m: Model, i: int | None) -> dict[str, Any]:
    if i is None:
        return {"id": None, "piece": None}
    try:
        return {"id": i, "piece": m.pieces([i])[0].decode("utf-8", "replace")}
    except (GGUFRuntimeError, IndexError):
        return {"id": i, "piece": None}


def _differences(m: Model, told: dict[str, Any], out: Any) -> list[dict[str, Any]]:
    now: dict[str, Any] = {"model": m.info.fingerprint}
    now |= records.machine(m) | out.sampling | {"seed": out.seed}
    then = {"model": told["model"].get("fingerprint"), **told["machine"], **told["sampling"]}
    return [
        {"name": k, "recorded": then[k], "replayed": v}
        for k, v in now.items()
        if k in then and then[k] != v
    ]


def _describe(terminal: Terminal, facts: dict[str, Any]) -> None:
    if facts["same"]:
        terminal.line(f"same: {facts['tokens']}/{facts['of']} tokens")
        return
    first = facts["first"]
    terminal.line(f"differs: {facts['tokens']}/{facts['of']} tokens are the same")
    for run in ("recorded", "replayed"):
        terminal.line(f"  {run}  {_shown(first[run])}")
        for row in first[run]["top"]:
            terminal.line(f"    {row['logit']:9.4f}  {_shown(row)}")
    margins = [f"{_number(first['margin'][run])} {run}" for run in ("recorded", "replayed")]
    terminal.line(f"  margin of the recorded token: {', '.join(margins)}")
    for s in facts["settings"]:
        terminal.line(f"  {s['name']}: {s['recorded']} recorded, {s['replayed']} replayed")
    if not facts["settings"]:
        terminal.line("  no setting differs")


def _number(margin: float | None) -> str:
    return "unknown" if margin is None else f"{margin:.4f}"


def _shown(token: dict[str, Any]) -> str:
    if token["id"] is None:
        return "the end of the answer"
    return (
        f"{show(token['piece'])} ({token['id']})"
        if token["piece"] is not None
        else str(token["id"])
    )
