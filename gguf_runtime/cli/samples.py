"""`run -N K`: several answers to one prompt, which is read once."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.load import pass_on
from gguf_runtime.cli.writer import Writer
from gguf_runtime.errors import ExitCode
from gguf_runtime.sampling import SEEDS

if TYPE_CHECKING:
    from gguf_runtime import Model


def several(writer: Writer, m: Model, request: dict[str, Any], n: int) -> ExitCode:
    """Write n answers in order; the i-th is that of `--sample i` with the same seed.

    Raises:
        what an answer raised, after those before it were written.
    """
    first = request.get("sample", 0)
    seed = request["seed"] if "seed" in request else secrets.randbelow(SEEDS)
    asked = [request | {"seed": seed, "sample": first + i} for i in range(n)]
    writer.start()
    done: list[Any] = []
    stopped: BaseException | None = None
    try:
        with m.batch(asked) as answers:
            for out in answers:
                pass_on(writer.terminal, out.notices)
                if out.error is not None:
                    raise out.error
                done.append(out)
                writer.sample(out, first + len(done) - 1)
    except KeyboardInterrupt as e:
        stopped = e
    writer.end_samples(done, first)
    if stopped is not None:
        raise stopped
    return ExitCode.DONE
