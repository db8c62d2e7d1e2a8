"""What Tab completes: commands, their settings, paths."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from gguf_runtime.cli.talk import commands, settings


class Words(Completer):
    """Completes lines that begin with a slash."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word, blank, rest = text.partition(" ")
        if not blank:
            names = [n for c in commands.COMMANDS for n in (c.name, *c.others)]
            yield from _of([f"/{n}" for n in names], word)
            return
        command = commands.find(word[1:])
        if command is None:
            return
        if command.paths:
            found = list(self._paths.get_completions(Document(rest), event))
            if not found and command.name == "file":  # several, one after the other
                found = list(self._paths.get_completions(Document(rest.split(" ")[-1]), event))
            yield from found
        elif command.name == "set" and " " not in rest:
            yield from _of(settings.names(), rest)
        elif command.name == "think":
            yield from _of(["on", "off", "auto"], rest)
        elif command.name == "help":
            yield from _of([c.name for c in commands.COMMANDS], rest)
        elif command.name == "model":
            from gguf_runtime.hub.catalog import entries

            yield from _of(list(entries()), rest)


def _of(names: list[str], begun: str) -> Iterable[Completion]:
    for name in names:
        if name.startswith(begun):
            yield Completion(name, start_position=-len(begun))
