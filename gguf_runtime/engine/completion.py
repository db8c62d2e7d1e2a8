"""What a request gives back: text, ids, why it ended, and the figures of the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

FinishReason = Literal[
    "stop", "length", "context", "time", "loop", "tool_calls", "interrupted", "error"
]


class Notice(NamedTuple):
    """Something that was done otherwise than asked or expected: a code for programs, a message for people."""

    code: str
    message: str


@dataclass(slots=True)
class Usage:
    """Tokens of a request.

    prompt     of the prompt, those found in the cache included
    cached     of the prompt, found in the cache and not read again
    generated  of the answer; reasoning: of these, before the answer proper
    drafted, accepted  guessed ahead, and of these right
    """

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    reasoning: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Timings:
    """Seconds and rates of a request; rates are tokens per second, None where nothing was done.

    load_s, compile_s  of the model, before the request
    prefill_s  reading the prompt · ttft_s  until the first token was chosen · decode_s  after that
    """

    load_s: float = 0.0
    compile_s: float = 0.0
    prefill_s: float = 0.0
    ttft_s: float | None = None
    decode_s: float = 0.0
    total_s: float = 0.0
    prefill_tps: float | None = None
    decode_tps: float | None = None


@dataclass(slots=True)
class Completion:
    """An answer.

    Attributes:
        text: the answer, without stop string and control tokens.
        ids: the tokens that were generated, the end of turn not among them.
        finish_reason: stop (end of turn or a stop), length, context, time, loop, tool_calls (end of a
            turn that calls tools), interrupted or error.
        reasoning: what came before the answer, between the tags of the model; None without.
        tool_calls: dicts of name, arguments (an object) and id.
        stop: the stop string or stop id that ended it, None otherwise.
        seed: that repeats it.
        sampling: all parameters in effect.
        profile: rows with times, where asked for.
        error: why there is no answer, or no whole one.
        index: of the request in its batch, from 0.
    """

    text: str = ""
    ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    stop: str | int | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    seed: int = 0
    sampling: dict[str, Any] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    reasoning: str | None = None
    tool_calls: list[Any] = field(default_factory=list)
    object: Any = None
    logprobs: Any = None
    error: BaseException | None = None
    profile: str | None = None
    index: int | None = None

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "…"
        return f"<Completion {shown!r}, {self.usage.generated} tokens, {self.finish_reason}>"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        facts = asdict(self)
        facts["error"] = None if self.error is None else str(self.error)
        return facts
