"""What `run` writes to stdout: text, one JSON object, or events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gguf_runtime.cli import result
from gguf_runtime.cli.terminal import Terminal

if TYPE_CHECKING:
    from gguf_runtime import Model


# What one of several answers has of its own.
PARTS = (
    *("sample", "text", "reasoning", "tool_calls", "object", "ids", "finish_reason", "stop"),
    *("usage", "timings", "context"),
)


class Writer:
    """stdout in one of three forms."""

    def __init__(self, terminal: Terminal, form: str, name: str) -> None:
        self.terminal = terminal
        self.form = form
        self.name = name
        self.model: Model | None = None
        self.completion: Any = None
        self.number = 0  # of the sample
        self.shows_thinking = False  # though stderr is no terminal
        self._ends_line = True
        self._told = self._told_samples = 0

    def start(self) -> None:
        """Once the model is there."""
        if self.form == "jsonl":
            facts = self._facts(None)
            self._event("start", schema_version=facts["schema_version"], model=facts["model"])
            self._notices()

    def event(self, kind: str, value: Any) -> None:
        """A part of the answer ("text"), of the reasoning before it, or a call of a tool ("tool")."""
        if kind == "text":
            self.piece(value)
        elif self.form == "jsonl":
            self._event("delta", **{"tool_call" if kind == "tool" else kind: value})
        elif kind == "reasoning" and (self.shows_thinking or self.form == "text"):
            self.terminal.think(value, force=self.shows_thinking)

    def piece(self, text: str) -> None:
        """A part of the answer."""
        if not text:
            return
        if self.form == "text":
            self._ends_line = text.endswith("\n")
            self.terminal.write(text)
        elif self.form == "jsonl":
            self._event("delta", text=text)

    def end_line(self) -> None:
        """A text is given its last line end, so that what stderr says begins a line."""
        if not self._ends_line:
            self._ends_line = True
            self.terminal.write("\n")

    def end(self, completion: Any) -> None:
        """The whole answer."""
        self.terminal.end_thought()
        self.completion = completion
        if self.form == "text":
            self.end_line()
            return
        facts = self._facts(None)
        if self.form == "json":
            self.terminal.line(result.dumps(facts))
        else:
            self._notices()
            self._event("end", answer=facts)

    def sample(self, completion: Any, number: int) -> None:
        """One whole answer of several."""
        if self.form == "text":
            if self._told_samples:
                self.terminal.write("\n")
            self._told_samples += 1
            self.piece(completion.text)
            self.end_line()
        elif self.form == "jsonl":
            self._event("delta", text=completion.text, sample=number)
            self.completion, self.number = completion, number
            self._notices()
            self._event("end", answer=self._facts(None))

    def end_samples(self, completions: list[Any], first: int) -> None:
        """After the last of several answers."""
        if self.form != "json" or not completions:
            return
        every = []
        for number, completion in enumerate(completions, first):
            self.completion, self.number = completion, number
            every.append(self._facts(None))
        self.terminal.line(result.dumps(every[0] | {"samples": [_part(f) for f in every]}))

    def failed(self, error: BaseException) -> None:
        """An error in place of the rest; stderr gets it from whoever catches it."""
        if self.form == "json":
            self.terminal.line(result.dumps(self._facts(error) | {"finish_reason": "error"}))
        elif self.form == "jsonl":
            self._notices()
            self._event("error", error=result.error_facts(error))
        else:
            self.end_line()

    def _facts(self, error: BaseException | None) -> dict[str, Any]:
        facts = result.answer(self.terminal, self.name, self.model, self.completion, error)
        return facts | {"sample": self.number}

    def _notices(self) -> None:
        for n in self.terminal.notices[self._told :]:
            self._event("notice", code=n.code, message=n.message)
        self._told = len(self.terminal.notices)

    def _event(self, kind: str, **facts: Any) -> None:
        self.terminal.line(result.dumps({"event": kind, **facts}))


def _part(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: facts[k] for k in PARTS}
