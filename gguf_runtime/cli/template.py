"""`template`: what a chat template makes of a conversation, as text or as the ids that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from gguf_runtime.cli import options as o
from gguf_runtime.cli import prompt as prompts
from gguf_runtime.cli.load import pass_on
from gguf_runtime.cli.result import dumps
from gguf_runtime.cli.settings import Settings
from gguf_runtime.cli.terminal import Terminal, current
from gguf_runtime.cli.values import UsageError
from gguf_runtime.hub.resolve import resolve

EXAMPLE = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello! What can I do?"},
    {"role": "user", "content": "Tell me a joke."},
]


def template(
    model: o.ModelArg,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="a user's message; - is stdin")
    ] = None,
    file: o.Files = None,
    messages: o.Messages = None,
    system: o.System = None,
    template: o.Template = None,
    template_arg: o.TemplateArg = None,
    think: o.Think = None,
    source: Annotated[
        bool,
        typer.Option("--source", rich_help_panel="output", help="the template itself, in Jinja"),
    ] = False,
    ids: Annotated[
        bool, typer.Option("--ids", rich_help_panel="output", help="the ids, on one line")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="output", help="one JSON object")
    ] = False,
) -> None:
    """The prompt that `run` and `chat` give a model, as its chat template renders it.

    Without a PROMPT and --messages a short conversation is rendered. No weights are loaded.
    """
    if source + ids + as_json > 1:
        raise UsageError("--source, --ids and --json exclude each other")
    terminal = current()
    if source:
        terminal.write(_source(model, template))
        return
    history = prompts.messages(messages)
    if not history and prompt is None and not file:
        history = list(EXAMPLE)
    text = prompts.gather(prompt, None, file or ()) if prompt is not None or file else None
    told = prompts.conversation(system, history, text)
    chat = told.get("messages") or [{"role": "user", "content": told["prompt"]}]
    asked = Settings(think=think, template_arg=template_arg).request()
    turn = {k: v for k, v in asked.items() if k in ("think", "template_args")}
    rendered, found, pieces = render(terminal, model, chat, template, turn)
    if as_json:
        facts = {"schema_version": 1, "text": rendered, "count": len(found), "ids": found}
        terminal.line(dumps(facts | {"pieces": pieces}))
    elif ids:
        terminal.line(" ".join(map(str, found)))
    else:
        terminal.write(rendered)
        if not rendered.endswith("\n") and terminal.out_is_terminal:
            terminal.write("\n")


def render(
    terminal: Terminal,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    given: str | None = None,
    turn: Mapping[str, Any] | None = None,
) -> tuple[str, list[int], list[str]]:
    """A conversation as a model reads it: its text, its ids and their pieces.

    Raises:
        RequestError: the model has no template, or it refuses the conversation.
    """
    from gguf_runtime.engine.given import prompter_of
    from gguf_runtime.engine.turn import Turn
    from gguf_runtime.gguf import open_file
    from gguf_runtime.text import Tokenizer

    with open_file(resolve(model)) as file:
        tokenizer = Tokenizer.from_gguf(file)
        prompter, notices = prompter_of(file, tokenizer, given)
        pass_on(terminal, notices)
        segments, _, said = prompter.conversation(messages, Turn.of(**(turn or {})))
        pass_on(terminal, said)
        found = prompter.encode(segments)
        pieces = [
            tokenizer.piece(i, special=True).decode("utf-8", "backslashreplace") for i in found
        ]
    return "".join(text for text, _ in segments), found, pieces


def _source(model: str, given: str | None) -> str:
    from gguf_runtime.engine.given import find
    from gguf_runtime.engine.prompt import NO_CONVERSATION, own_source
    from gguf_runtime.errors import RequestError
    from gguf_runtime.gguf import open_file

    if given is not None:
        return find(given)[1]
    with open_file(resolve(model)) as file:
        source = own_source(file)
    if source is None:
        raise RequestError(NO_CONVERSATION[0], where=model, hint=NO_CONVERSATION[1])
    return source
