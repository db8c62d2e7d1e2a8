"""`batch`: many prompts from a file; whatever happens, no answer is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli.batch import records
from gguf_runtime.cli.batch.fill import Fill
from gguf_runtime.cli.batch.job import Job
from gguf_runtime.cli.batch.output import Growing, open_output
from gguf_runtime.cli.batch.request import Plan
from gguf_runtime.cli.batch.source import Format, Source, open_source
from gguf_runtime.cli.settings import Form, Settings
from gguf_runtime.cli.terminal import current
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import ExitCode, show

MAX_TOKENS = 2048  # of a line's answer, where nobody said otherwise


def batch(
    model: o.ModelArg,
    source: Annotated[
        str, typer.Argument(metavar="IN", help="JSON lines, CSV or text; - is stdin")
    ],
    settings: Settings,
    form: Form,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            rich_help_panel="output",
            help="a file of JSON lines, which is gone on with where it exists; - is stdout",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            "-p",
            metavar="TEXT",
            rich_help_panel="prompt",
            help="with columns in braces: 'Classify: {text}'; {line} is a line of text",
        ),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            rich_help_panel="prompt",
            help="of IN (default: by its suffix, else by its first line)",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="COLUMN",
            rich_help_panel="output",
            help="copy a column to the output; repeatable; '*': all",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, rich_help_panel="prompt", help="only the first N lines"
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            metavar="N",
            min=1,
            rich_help_panel="machine",
            help="answers in the making at once (default: what is fastest and fits)",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel="output",
            help="only count lines and tokens, and try how long it would take",
        ),
    ] = False,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered",
            rich_help_panel="output",
            help="in the order of IN (default: as they are done); a file is sorted at the end",
        ),
    ] = False,
    retry_errors: Annotated[
        bool,
        typer.Option(
            "--retry-errors", rich_help_panel="output", help="ask lines again that gave an error"
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", rich_help_panel="output", help="start anew, whatever OUT holds"
        ),
    ] = False,
) -> ExitCode:
    """Many prompts from a file, answered several at a time; each answer is saved as it is done.

    IN has a prompt a line: JSON with prompt or messages, and whatever else by an option's long name;
    requests of OpenAI's batch files; or a table or text that fills -p. A line that cannot be
    answered becomes an error line and the run goes on (exit code 6). An answer has at most 2048
    tokens where nobody said otherwise.

    The same command again goes on where it was stopped: OUT.run.json says what made OUT.
    """
    terminal = current()
    if settings.show_settings:
        from gguf_runtime.cli.effective import show as show_settings

        return show_settings(terminal, model, _with_limit(settings), raw=form.raw)
    if output is None and not dry_run:
        raise UsageError("-o OUT is missing", "-o answers.jsonl, or -o - for stdout")
    if overwrite and retry_errors:
        raise UsageError("--overwrite and --retry-errors exclude each other")
    if settings.show_thinking:
        raise UsageError("--show-thinking has no place here: every line of OUT has its reasoning")
    form.request()  # refuses what excludes each other
    settings = _with_files_read(_unescaped(settings) if form.escape else settings)
    settings = _with_limit(settings)
    fill = _fill(prompt, escape=form.escape)
    job = Job(terminal, model, limit, parallel)
    job.ordered, job.retry_errors, job.overwrite = ordered, retry_errors, overwrite
    columns = () if fill is None else fill.columns
    if dry_run or output is None:
        with open_source(source, format, columns, keeps=True) as found:
            return job.dry(found, _plan(found, settings, form, fill, keep))
    with open_output(output, source, terminal) as target:
        copied = target.resumes
        beside = target.path.parent if isinstance(target, Growing) else None
        with open_source(source, format, columns, keeps=copied, beside=beside) as found:
            return job.run(found, _plan(found, settings, form, fill, keep), target)


def _plan(
    source: Source, settings: Settings, form: Form, fill: Fill | None, keep: list[str] | None
) -> Plan:
    """What holds for all lines; UsageError where it does not go with the input."""
    if source.format == "openai":
        given = {"--prompt": fill, "--keep": keep, "--raw": form.raw}
        for name in [n for n, x in given.items() if x]:
            raise UsageError(
                f"{name} does not go with OpenAI's batch lines: they say it themselves"
            )
    known = records.columns(source)
    if known is not None:
        if fill is not None:
            fill.check(known, source.name)
        elif source.format != "text" and "prompt" not in known:
            raise UsageError(
                f"which column of {source.name} is the prompt?",
                f"it has {', '.join(map(show, known[:12]))}",
                f"say so with -p '{{{known[0]}}}', or -p 'Classify: {{{known[0]}}}'",
            )
        missing = [k for k in keep or () if k != "*" and k not in known]
        if missing:
            raise UsageError(
                f"--keep: {source.name} has no column {show(missing[0])}",
                f"it has {', '.join(map(show, known[:12]))}",
            )
    return Plan(source.format, -1, settings, form, fill, tuple(dict.fromkeys(keep or ())))


def _fill(prompt: str | None, *, escape: bool) -> Fill | None:
    if prompt is None:
        return None
    text = prompts.literal(prompt, "--prompt")
    return Fill(prompts.unescape(text) if escape else text)


def _with_limit(settings: Settings) -> Settings:
    return settings if settings.max_tokens is not None else replace(settings, max_tokens=MAX_TOKENS)


def _with_files_read(settings: Settings) -> Settings:
    """With the text of files in place of their names: read once, and kept in the manifest."""
    asked = settings.request()
    choice, schema, grammar = (asked.get(k) for k in ("choices", "schema", "grammar"))
    return replace(settings, schema=schema, grammar=grammar, choice=choice, choices=None)


def _unescaped(settings: Settings) -> Settings:
    stop = [prompts.unescape(s) for s in settings.stop or ()] or None
    system = settings.system
    return replace(settings, stop=stop, system=system and prompts.unescape(system))
