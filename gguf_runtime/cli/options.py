"""Options that several commands share, as annotated types."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Precision = Literal["int8", "int16"]
CacheType = Literal["f16", "f32", "q8_0"]

ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="a name that `list --found` shows, a GGUF file, or a folder with one",
    ),
]

# The machine.
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        metavar="N",
        min=1,
        max=1024,
        envvar="GGUF_RUNTIME_THREADS",
        rich_help_panel="machine",
        help="threads that compute (default: the fast cores this process may use)",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "-c",
        "--ctx-size",
        metavar="N|max",
        rich_help_panel="machine",
        help="tokens of prompt and answer together (default: what the model was trained for, if it"
        " fits in half of the free memory)",
    ),
]
CacheTypeOption = Annotated[
    CacheType | None,
    typer.Option(
        "--cache-type",
        rich_help_panel="machine",
        help="how keys and values are kept (default f16)",
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        rich_help_panel="machine",
        help="activations in matmuls: int16 is the file's own arithmetic, int8 reads prompts faster"
        " (default int8)",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        rich_help_panel="machine",
        help="refuse to use more, for example 2GB",
    ),
]
PackCache = Annotated[
    bool,
    typer.Option(
        "--pack-cache",
        rich_help_panel="machine",
        help="keep the packed weights in a file of the cache folder and map it: starts at once, is"
        " shared by processes, and runs a model larger than memory (slowly)",
    ),
]
Nice = Annotated[
    int | None,
    typer.Option(
        "--nice",
        metavar="N",
        min=0,
        max=19,
        rich_help_panel="machine",
        help="let other programs go first: 19 only takes what nobody else wants",
    ),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        envvar="HF_HUB_OFFLINE",
        rich_help_panel="machine",
        help="never offer the network",
    ),
]

# The answer.
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        "--n-predict",
        "--predict",
        "--max-new-tokens",
        metavar="N",
        min=-1,
        rich_help_panel="answer",
        help="tokens at most; -1: until the context is full (default: the end of the turn;"
        " 256 with --raw)",
    ),
]
MaxTime = Annotated[
    float | None,
    typer.Option(
        "--max-time", metavar="S", min=0, rich_help_panel="answer", help="seconds at most"
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", metavar="TEXT", rich_help_panel="answer", help="end before this text; repeatable"
    ),
]
StopId = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-id",
        metavar="N",
        min=0,
        rich_help_panel="answer",
        help="end at this token id; repeatable",
    ),
]
StopOnLoop = Annotated[
    bool,
    typer.Option(
        "--stop-on-loop",
        rich_help_panel="answer",
        help="end where the answer repeats itself word for word, eight times over",
    ),
]
OnOverflow = Annotated[
    Literal["stop", "error", "trim"] | None,
    typer.Option(
        "--on-overflow",
        rich_help_panel="answer",
        help="where the context is full: end the answer, fail with code 1, or drop the oldest turns;"
        " trim shortens a prompt that is too long, too (default stop)",
    ),
]
Think = Annotated[
    Literal["on", "off", "auto"] | None,
    typer.Option(
        "--think",
        rich_help_panel="answer",
        help="reasoning before the answer; auto: as the chat template does (default auto)",
    ),
]
ThinkBudget = Annotated[
    int | None,
    typer.Option(
        "--think-budget",
        metavar="N",
        min=0,
        rich_help_panel="answer",
        help="tokens of reasoning at most; then it is ended",
    ),
]
ShowThinking = Annotated[
    bool,
    typer.Option(
        "--show-thinking",
        rich_help_panel="output",
        help="reasoning on stderr, though that is no terminal",
    ),
]

# Sampling. None means: not asked for, so the model file's advice or the built-in value holds.
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        "--temp",
        metavar="X",
        min=0,
        rich_help_panel="sampling",
        help="0 always takes the likeliest token (default 0.8)",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        metavar="N",
        min=0,
        rich_help_panel="sampling",
        help="keep the N likeliest; 0 keeps all (default 40)",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="X",
        min=0,
        max=1,
        rich_help_panel="sampling",
        help="keep the likeliest that together have this probability (default 0.95)",
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="X",
        min=0,
        max=1,
        rich_help_panel="sampling",
        help="keep those at least this likely beside the likeliest (default 0.05)",
    ),
]
RepeatPenalty = Annotated[
    float | None,
    typer.Option(
        "--repeat-penalty",
        metavar="X",
        min=0,
        rich_help_panel="sampling",
        help="divide by it what was said lately (default 1.0)",
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        "--presence-penalty",
        metavar="X",
        rich_help_panel="sampling",
        help="take this from what was said lately (default 0)",
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty",
        metavar="X",
        rich_help_panel="sampling",
        help="take this for each time it was said lately (default 0)",
    ),
]
RepeatLastN = Annotated[
    int | None,
    typer.Option(
        "--repeat-last-n",
        metavar="N",
        min=0,
        rich_help_panel="sampling",
        help="how many tokens are lately; 0: none (default 64)",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=2**32 - 1,
        rich_help_panel="sampling",
        help="the same seed gives the same text (default: random, reported with --json)",
    ),
]

NoSpeculate = Annotated[
    bool,
    typer.Option(
        "--no-speculate",
        rich_help_panel="machine",
        help="do not guess ahead from the text so far (changes the time, never the text)",
    ),
]
ShowSettings = Annotated[
    bool,
    typer.Option(
        "--show-settings",
        rich_help_panel="output",
        help="print every setting with where it comes from, and end",
    ),
]

System = Annotated[
    str | None,
    typer.Option(
        "--system",
        "--system-prompt",
        metavar="TEXT",
        rich_help_panel="prompt",
        help="the system message",
    ),
]

# The prompt.
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="NAME|FILE",
        rich_help_panel="prompt",
        help="a chat template in place of the model's own, for example chatml",
    ),
]
TemplateArg = Annotated[
    list[str] | None,
    typer.Option(
        "--template-arg",
        metavar="KEY=JSON",
        rich_help_panel="prompt",
        help="a variable of the chat template, for example 'effort=\"low\"'; repeatable",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        rich_help_panel="prompt",
        help="text that comes first; repeatable; - is stdin",
    ),
]
Messages = Annotated[
    str | None,
    typer.Option(
        "--messages",
        metavar="FILE",
        rich_help_panel="prompt",
        help="JSON list of role and content that comes before PROMPT",
    ),
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", rich_help_panel="prompt", help="continue the prompt; no template around it"
    ),
]
NoBos = Annotated[
    bool,
    typer.Option("--no-bos", rich_help_panel="prompt", help="with --raw: no start token before it"),
]
Special = Annotated[
    bool,
    typer.Option(
        "--special", rich_help_panel="prompt", help="with --raw: names of control tokens count"
    ),
]
Escape = Annotated[
    bool,
    typer.Option(
        "--escape", rich_help_panel="prompt", help=r"read \n, \t, \xNN, \uNNNN in options"
    ),
]
