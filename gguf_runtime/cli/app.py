"""The table of commands. A command's module is imported when the command is asked for."""

from __future__ import annotations

import gc
import os

from gguf_runtime.cli.dispatch import Row, dispatch

COMMANDS = (
    Row("run", "run.run", "one answer, streamed to stdout"),
    Row("chat", "chat.chat", "a conversation at the terminal"),
    Row("tokenize", "tokenize.tokenize", "the ids and pieces that a model sees for a text"),
    Row("inspect", "inspect.inspect", "what is in a model file, of any architecture", ("show",)),
    Row("bench", "bench.bench", "speed of reading prompts and of answering"),
    Row("list", "models.list_models", "models on this machine and models that can be pulled"),
    Row("pull", "models.pull_model", "fetch a model of the catalog and check its digest"),
    Row("warmup", "warmup.warmup", "compile kernels now, so that the first answer does not wait"),
    Row("doctor", "doctor.doctor", "what this machine is, what was chosen, and why"),
)


def main() -> int:
    """Entry of `gguf-runtime` and `gg`; returns the exit code."""
    # What the process spends beside its work: docs/performance.md, "Start".
    gc.set_threshold(100_000, 20, 100)  # starting makes many objects and hardly any garbage
    if os.environ.get("GGUF_RUNTIME_EXACT", "") in ("", "0"):
        # The threads of numpy's BLAS spin from the import on, and kernels do without it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = dispatch(COMMANDS)
    gc.freeze()  # else the interpreter, as it ends, looks through all objects several times
    return code
