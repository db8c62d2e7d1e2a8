"""`run`: one answer, streamed to stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli import result
from gguf_runtime.cli.load import load, pass_on
from gguf_runtime.cli.parse import UsageError
from gguf_runtime.cli.terminal import OutputError, current
from gguf_runtime.cli.writer import Writer
from gguf_runtime.errors import ExitCode, FileError, GGUFRuntimeError, RequestError

if TYPE_CHECKING:
    from gguf_runtime import Model

Messages = list[dict[str, Any]]


def run(
    model: o.ModelArg,
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
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            rich_help_panel="prompt",
            help="text that comes first; repeatable; - is stdin",
        ),
    ] = None,
    system: o.System = None,
    messages: Annotated[
        str | None,
        typer.Option(
            "--messages",
            metavar="FILE",
            rich_help_panel="prompt",
            help="JSON list of role and content that comes before PROMPT",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", rich_help_panel="prompt", help="continue the prompt; no template around it"
        ),
    ] = False,
    no_bos: Annotated[
        bool,
        typer.Option(
            "--no-bos", rich_help_panel="prompt", help="with --raw: no start token before it"
        ),
    ] = False,
    special: Annotated[
        bool,
        typer.Option(
            "--special", rich_help_panel="prompt", help="with --raw: names of control tokens count"
        ),
    ] = False,
    escape: Annotated[
        bool,
        typer.Option(
            "--escape", rich_help_panel="prompt", help=r"read \n, \t, \xNN, \uNNNN in options"
        ),
    ] = False,
    max_tokens: o.MaxTokens = None,
    max_time: o.MaxTime = None,
    stop: o.Stop = None,
    stop_id: o.StopId = None,
    on_overflow: Annotated[
        Literal["error", "stop"],
        typer.Option(
            "--on-overflow",
            rich_help_panel="answer",
            help="when the context fills while answering: stop, or fail with code 1",
        ),
    ] = "stop",
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    repeat_penalty: o.RepeatPenalty = None,
    presence_penalty: o.PresencePenalty = None,
    frequency_penalty: o.FrequencyPenalty = None,
    repeat_last_n: o.RepeatLastN = None,
    seed: o.Seed = None,
    threads: o.Threads = None,
    context: o.Context = None,
    cache_type: o.CacheTypeOption = "f16",
    precision: o.PrecisionOption = "int8",
    max_memory: o.MaxMemory = None,
    offline: o.Offline = False,
    no_speculate: o.NoSpeculate = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel="output", help="one JSON object at the end"),
    ] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", rich_help_panel="output", help="events, one JSON per line")
    ] = False,
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
    writer = Writer(terminal, "json" if as_json else "jsonl" if as_jsonl else "text", model)
    machine = {
        "threads": threads,
        "context": context,
        "cache_type": cache_type,
        "precision": precision,
        "max_memory": max_memory,
        "offline": offline,
        "seed": seed,
    }
    request = {
        "max_tokens": max_tokens,
        "max_time": max_time,
        "stop": _texts(stop, escape),
        "stop_ids": stop_id or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repeat_penalty": repeat_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "repeat_last_n": repeat_last_n,
        "seed": seed,
        "speculate": False if no_speculate else None,
    }
    request = {k: v for k, v in request.items() if v is not None}
    try:
        if raw and (system or messages):
            raise UsageError("--raw takes no --system and no --messages: it has no template")
        if not raw and (no_bos or special):
            raise UsageError("--no-bos and --special need --raw")
        history = _messages(messages)
        text = None
        if not history or prompt is not None or prompt_option is not None or file:
            text = prompts.gather(prompt, prompt_option, file or (), escape=escape)
            if text is None:
                return _chat(model, system, request, machine)
        if system is not None:
            system = prompts.literal(system, "--system")
            system = prompts.unescape(system) if escape else system
        with load(terminal, model, **machine) as m:
            writer.model = m
            request |= _asked(m, text, history, system, raw=raw, no_bos=no_bos, special=special)
            if profile:
                request["profile"] = True
            return _stream(writer, m, request, fail_on_overflow=on_overflow == "error")
    except (GGUFRuntimeError, UsageError) as e:
        writer.failed(e)
        raise


def _stream(
    writer: Writer, m: Model, request: dict[str, Any], *, fail_on_overflow: bool
) -> ExitCode:
    terminal = writer.terminal
    writer.start()
    stream: Any = m.stream(**request)
    stopped: BaseException | None = None
    try:
        for piece in stream:
            writer.piece(piece)
    except KeyboardInterrupt as e:
        stopped = e
        stream.close()
    except OutputError:
        stream.close()
        raise
    completion = stream.result
    writer.end_line()
    pass_on(terminal, getattr(completion, "notices", ()))
    if completion.finish_reason == "context" and fail_on_overflow:
        writer.completion = completion
        raise RequestError(
            "the context is full before the answer ended",
            got=f"{getattr(m, 'context', 0):,} tokens",
            hint="ask for more with --context, or take what fits with --on-overflow stop",
        )
    writer.end(completion)
    if request.get("profile"):
        terminal.say(str(getattr(completion, "profile", "")))
    if terminal.verbose:
        terminal.say(_speeds(completion))
    if stopped is not None:
        raise stopped
    return ExitCode.DONE


def _asked(
    m: Model,
    text: str | None,
    history: Messages,
    system: str | None,
    *,
    raw: bool,
    no_bos: bool,
    special: bool,
) -> dict[str, Any]:
    """The prompt as the engine takes it."""
    if raw:
        extra = {k: v for k, v in (("bos", not no_bos), ("special", special)) if v == (k != "bos")}
        return {"prompt": text, "raw": True, **extra}
    if system is None and not history:
        return {"prompt": text}
    messages: Messages = [{"role": "system", "content": system}] if system is not None else []
    messages += history
    if text is not None:
        messages.append({"role": "user", "content": text})
    return {"messages": messages}


def _messages(name: str | None) -> Messages:
    if name is None:
        return []
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=name) from e
    except (ValueError, RecursionError) as e:
        raise RequestError(f"not JSON: {e}", where=name) from None
    if isinstance(found, dict) and "messages" in found:
        found = found["messages"]
    sound = isinstance(found, list) and all(
        isinstance(x, dict) and isinstance(x.get("role"), str) and "content" in x for x in found
    )
    if not sound or not found:
        raise RequestError(
            "not a list of messages", where=name, expected='[{"role": "user", "content": "…"}]'
        )
    return list(found)


def _texts(stop: list[str] | None, escape: bool) -> list[str] | None:
    if not stop:
        return None
    if "" in stop:
        raise UsageError("--stop: the text is empty")
    return [prompts.unescape(s) for s in stop] if escape else list(stop)


def _chat(
    model: str, system: str | None, request: dict[str, Any], machine: dict[str, Any]
) -> ExitCode:
    from gguf_runtime.cli.chat import converse

    return converse(model, system, request, machine)


def _speeds(completion: Any) -> str:
    t, u = completion.timings, completion.usage
    get = result.get
    return (
        f"prompt {get(u, 'prompt', 0):,} tokens, {get(t, 'prefill_tps', 0) or 0:,.1f}/s;"
        f" answer {get(u, 'generated', 0):,} tokens, {get(t, 'decode_tps', 0) or 0:,.1f}/s;"
        f" first token after {get(t, 'ttft_s', 0) or 0:.2f} s; seed {completion.seed}"
    )
