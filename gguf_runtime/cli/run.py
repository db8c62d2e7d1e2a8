"""`run`: one answer, streamed to stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli import record as records
from gguf_runtime.cli.load import load
from gguf_runtime.cli.settings import Form, Settings
from gguf_runtime.cli.streaming import answer
from gguf_runtime.cli.terminal import current
from gguf_runtime.cli.values import UsageError
from gguf_runtime.cli.writer import Writer
from gguf_runtime.errors import ExitCode, GGUFRuntimeError


def run(
    model: o.ModelArg,
    settings: Settings,
    form: Form,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="taken literally; it follows files and stdin; - is stdin"
        ),
    ] = None,
    prompt_option: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", rich_help_panel="prompt", help="PROMPT"),
    ] = None,
    file: o.Files = None,
    messages: o.Messages = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel="output", help="one JSON object at the end"),
    ] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", rich_help_panel="output", help="events, one JSON per line")
    ] = False,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            "-N",
            metavar="K",
            min=1,
            max=4096,
            rich_help_panel="answer",
            help="answers to the one prompt; the i-th is that of --sample i",
        ),
    ] = 1,
    sample: Annotated[
        int,
        typer.Option(
            "--sample",
            metavar="I",
            min=0,
            max=2**32 - 1,
            rich_help_panel="sampling",
            help="which of the answers that one seed gives, counted from 0",
        ),
    ] = 0,
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="FILE",
            rich_help_panel="output",
            help="write down what `replay` needs to repeat the run",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", rich_help_panel="output", help="where the time went, on stderr"),
    ] = False,
) -> ExitCode:
    """One answer, streamed to stdout.

    The prompt is FILEs, then stdin, then PROMPT, joined by a blank line. Stdin is read when it is a
    pipe, when it is a file and there is no PROMPT, or when - names it. Without any prompt at a
    terminal, `chat` opens.
    """
    terminal = current()
    if as_json and as_jsonl:
        raise UsageError("--json and --jsonl exclude each other")
    if samples > 1 and (record or profile):
        raise UsageError("--record and --profile take one answer, not -N")
    if record and settings.on_overflow == "trim":
        raise UsageError("--record and --on-overflow trim exclude each other")
    if settings.show_settings:
        from gguf_runtime.cli.effective import show

        return show(terminal, model, settings, raw=form.raw, as_json=as_json)
    writer = Writer(terminal, "json" if as_json else "jsonl" if as_jsonl else "text", model)
    writer.number, writer.shows_thinking = sample, settings.show_thinking
    try:
        texts = None
        history = prompts.messages(messages)
        if not history or prompt is not None or prompt_option is not None or file:
            texts = prompts.gather(prompt, prompt_option, file or (), escape=form.escape)
            if texts is None:
                return _chat(model, settings)
        request = _request(settings, form, history, texts)
        request |= {"sample": sample} if sample else {}
        request |= {"profile": True} if profile else {}
        if record:
            records.refuse_unwritable(Path(record))
        with load(terminal, model, **settings.machine()) as m:
            writer.model = m
            if samples > 1:
                from gguf_runtime.cli.samples import several

                return several(writer, m, request, samples)
            return answer(writer, m, request, record=record)
    except (GGUFRuntimeError, UsageError) as e:
        writer.failed(e)
        raise


def _request(
    settings: Settings, form: Form, history: list[dict[str, Any]], text: str | None
) -> dict[str, Any]:
    """What `Model.stream` takes."""
    if form.raw and (history or settings.gave("system")):
        raise UsageError("--raw takes no --system and no --messages: it has no template")
    request = form.request() | settings.request()
    if settings.stop:
        stop = [prompts.literal(s, "--stop") for s in settings.stop]
        request["stop"] = [prompts.unescape(s) for s in stop] if form.escape else stop
    system = None if form.raw else settings.system
    if system is not None:
        system = prompts.literal(system, "--system")
        system = prompts.unescape(system) if form.escape else system
    return request | prompts.conversation(system, history, text)


def _chat(model: str, settings: Settings) -> ExitCode:
    from gguf_runtime.cli.chat import converse

    return converse(model, settings)
