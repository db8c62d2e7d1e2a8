"""One answer on its way from the engine to stdout, and what is said around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli import result
from gguf_runtime.cli.load import pass_on
from gguf_runtime.cli.terminal import OutputError
from gguf_runtime.cli.writer import Writer
from gguf_runtime.errors import ExitCode, GGUFRuntimeError

if TYPE_CHECKING:
    from gguf_runtime import Model


def answer(
    writer: Writer,
    m: Model,
    request: dict[str, Any],
    *,
    record: str | None = None,
) -> ExitCode:
    """Stream an answer, to its end or to Ctrl-C, and tell what it has to say about itself.

    Raises:
        what ended the answer, after what there is was written; KeyboardInterrupt too.
    """
    terminal = writer.terminal
    writer.start()
    stream: Any = m.stream(events=True, **request)
    stopped: BaseException | None = None
    try:
        for kind, value in stream:
            writer.event(kind, value)
    except KeyboardInterrupt as e:
        stopped = e
        stream.close()
    except OutputError:
        stream.close()
        raise
    except GGUFRuntimeError:
        writer.completion = stream.result
        pass_on(terminal, stream.result.notices)
        raise
    completion = stream.result
    writer.end_line()
    pass_on(terminal, getattr(completion, "notices", ()))
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
