"""One answer on its way from the engine to stdout, and what is said around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli import result
from gguf_runtime.cli.load import pass_on
from gguf_runtime.cli.terminal import OutputError
from gguf_runtime.cli.writer import Writer
from gguf_runtime.errors import ExitCode, RequestError

if TYPE_CHECKING:
    from gguf_runtime import Model


def answer(
    writer: Writer,
    m: Model,
    request: dict[str, Any],
    *,
    record: str | None = None,
    fail_on_overflow: bool = False,
) -> ExitCode:
    """Stream an answer, to its end or to Ctrl-C, and tell what it has to say about itself.

    Raises:
        RequestError: the context is full, and that was to fail. KeyboardInterrupt: after what
            there is was written.
    """
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
    if record is not None:
        from gguf_runtime.cli import record as records

        facts = records.make(m, writer.name, stream.prompt_ids, request, completion)
        records.write(Path(record), facts)
    if request.get("profile"):
        terminal.say(str(getattr(completion, "profile", "")))
    if terminal.verbose:
        terminal.say(_speeds(completion))
    if stopped is not None:
        raise stopped
    return ExitCode.DONE


def _speeds(completion: Any) -> str:
    t, u = completion.timings, completion.usage
    get = result.get
    return (
        f"prompt {get(u, 'prompt', 0):,} tokens, {get(t, 'prefill_tps', 0) or 0:,.1f}/s;"
        f" answer {get(u, 'generated', 0):,} tokens, {get(t, 'decode_tps', 0) or 0:,.1f}/s;"
        f" first token after {get(t, 'ttft_s', 0) or 0:.2f} s; seed {completion.seed}"
    )
