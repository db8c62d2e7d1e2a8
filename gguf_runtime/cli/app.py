"""The table of commands. A command's module is imported when the command is asked for."""

from __future__ import annotations

import gc
import os

from gguf_runtime.cli.dispatch import Row, dispatch

COMMANDS = (
    Row(
        "run",
        "run.run",
        "one answer, streamed to stdout",
        (
            'gg run smollm2 "Why is the sky blue?"',
            'cat notes.txt | gg run smollm2 "Summarise in one sentence"',
            'gg run smollm2 "A name for a cat" -N 5 --seed 1 --json | jq -r ".samples[].text"',
        ),
    ),
    Row(
        "chat",
        "chat.chat",
        "a conversation at the terminal",
        ("gg chat smollm2", 'gg chat smollm2 --system "Answer in one sentence."'),
    ),
    Row(
        "batch",
        "batch.command.batch",
        "many prompts from a file, several at once, each answer saved as it is done",
        (
            "gg batch smollm2 rows.csv -p 'Classify: {text}' --keep label -o out.jsonl",
            "gg batch smollm2 prompts.jsonl -o out.jsonl --seed 1 --ordered",
            "gg batch smollm2 rows.csv -p 'Classify: {text}' --dry-run",
        ),
    ),
    Row(
        "replay",
        "replay.replay",
        "repeat a recorded run and say whether the same came out",
        (
            'gg run smollm2 "Tell a story" -n 64 --record r.json',
            "gg replay r.json --threads 1",
            "gg replay r.json --precision int16",
        ),
    ),
    Row(
        "tokenize",
        "tokenize.tokenize",
        "the ids and pieces that a model sees for a text",
        (
            'gg tokenize smollm2 "Hello, world"',
            "gg tokenize smollm2 --count < notes.txt",
        ),
    ),
    Row(
        "template",
        "template.template",
        "the prompt that a chat template makes of a conversation",
        (
            'gg template smollm2 "Hello" --system "Be brief."',
            "gg template smollm2 --messages chat.json --ids",
        ),
    ),
    Row(
        "inspect",
        "inspect.inspect",
        "what is in a model file, of any architecture",
        ("gg inspect smollm2", "gg inspect model.gguf --json --tensors | jq .type"),
        ("show",),
    ),
    Row(
        "bench",
        "bench.bench",
        "speed of reading prompts and of answering",
        ("gg bench smollm2", "gg bench smollm2 -p 512 -n 128 -d 0,4096 -o csv"),
    ),
    Row(
        "list",
        "models.list_models",
        "models on this machine and models that can be pulled",
        ("gg list", "gg list --found", "gg list --json | jq -r '.models[].name'"),
    ),
    Row(
        "pull",
        "models.pull_model",
        "fetch a model and check its digest",
        (
            "gg pull smollm2",
            "gg pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
            "GGUF_RUNTIME_MODELS=/data/models gg pull gemma-3-270m",
        ),
    ),
    Row(
        "rm",
        "models.remove_model",
        "delete a model that was pulled",
        ("gg rm smollm2", "gg rm hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 --yes"),
    ),
    Row(
        "warmup",
        "warmup.warmup",
        "compile kernels now, so that the first answer does not wait",
        ("gg warmup", "gg warmup smollm2"),
    ),
    Row(
        "doctor",
        "doctor.doctor",
        "what this machine is, what was chosen, and why",
        ("gg doctor", "gg doctor --selftest"),
    ),
    Row(
        "completion",
        "completion.completion",
        "a script that completes commands, options and models in a shell",
        (
            'eval "$(gg completion bash)"',
            "gg completion fish > ~/.config/fish/completions/gg.fish",
        ),
    ),
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
