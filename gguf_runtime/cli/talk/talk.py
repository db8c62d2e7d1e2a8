"""One conversation at the terminal: its model, its messages, its settings, and where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.load import load, pass_on
from gguf_runtime.cli.talk.calls import tools_of
from gguf_runtime.cli.talk.keyboard import Quiet
from gguf_runtime.cli.talk.store import Conversation, Store
from gguf_runtime.cli.terminal import Terminal
from gguf_runtime.errors import FileError, GGUFRuntimeError

if TYPE_CHECKING:
    from gguf_runtime import Model
    from gguf_runtime.cli.settings import Settings
    from gguf_runtime.cli.talk.line import Lines

FULL = 0.8  # of the context, from which on it is said


@dataclass(slots=True)
class Wishes:
    """What was asked for on the command line, beside the model and the settings."""

    plain: bool = False
    save: bool = True
    resume: str | None = None  # id of a saved conversation; "": the last one
    fork: bool = False
    tools: str | None = None  # a Python file


class Talk:
    """What commands and turns work on."""

    def __init__(
        self,
        terminal: Terminal,
        name: str,
        settings: Settings,
        wishes: Wishes,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.terminal, self.name, self.settings = terminal, name, settings
        self.system = settings.system
        self.request: dict[str, Any] = {**options, **settings.request()}
        self.plain = wishes.plain
        self.lines: Lines
        self.model: Model
        self.chat: Any = None
        self.store = Store()
        self.saving = wishes.save
        self.saved: Conversation | None = None
        self.files: list[tuple[str, str]] = []  # (name, text) that go before the next message
        self.default = ""  # stands in the next line
        self.last: Any = None  # Completion of the last answer
        self.read = self.generated = 0  # tokens, since the program began
        self.warned = False
        self.over = False
        self.tools: dict[str, Any] = {} if wishes.tools is None else tools_of(wishes.tools, self)

    # ---- the model -----------------------------------------------------------------------------

    def open(self) -> None:
        """Load the model; what is typed meanwhile stands in the line afterwards."""
        machine = self.settings.machine()
        machine.pop("seed", None)  # it is an option of requests, which /set can take back
        with Quiet() as keys:
            self.model = load(self.terminal, self.name, **machine)
        self.default = keys.typed or self.default

    def begin(self, messages: list[dict[str, Any]] | None = None) -> None:
        """A conversation with these messages, or a new one with the system message."""
        if messages is None:
            self.chat = self.model.chat(system=self.system, **self.tools)
        else:
            self.chat = self.model.chat(messages=messages, **self.tools)
            system = next((m for m in messages if m["role"] == "system"), None)
            self.system = system["content"] if system else None
        self.last, self.warned = None, False

    # ---- the store -----------------------------------------------------------------------------

    def save(self, pending: str | None = None) -> None:
        """Save the conversation as it stands, with a message that has no answer yet."""
        if not self.saving:
            return
        messages = [dict(m) for m in self.chat.messages]
        if pending is not None:
            messages.append({"role": "user", "content": pending})
        if self.saved is None:
            if not any(m["role"] == "user" for m in messages):
                return
            self.saved = self.store.new(self.name)
        self.saved.model, self.saved.options = self.name, dict(self.request)
        self.saved.messages = messages
        try:
            if not self.store.save(self.saved):
                self.terminal.notice(
                    "conversation-forked",
                    "another program wrote to this conversation: this one goes on as"
                    f" {self.saved.id}",
                )
        except (FileError, OSError) as e:
            self.saving = False
            facts = e.lines() if isinstance(e, FileError) else [str(e)]
            self.terminal.notice("not-saved", f"the conversation is not saved: {'; '.join(facts)}")

    # ---- figures -------------------------------------------------------------------------------

    def tokens(self) -> int:
        """Tokens of the conversation; 0 where the template takes none like it."""
        try:
            return int(self.chat.tokens)
        except GGUFRuntimeError:
            return 0

    def status(self) -> str:
        """A line about the conversation."""
        facts = [self.name, f"{self.tokens():,}/{self.model.context:,} tokens"]
        rate = self.last.timings.decode_tps if self.last is not None else None
        if rate and rate < float("inf"):
            facts.append(f"{rate:,.0f} tok/s" if rate >= 10 else f"{rate:.1f} tok/s")
        if self.files:
            facts.append(f"+ {', '.join(name for name, _ in self.files)}")
        if not self.saving:
            facts.append("not saved")
        return " · ".join(facts)

    def account(self, out: Any) -> None:
        """After an answer: figures, notices, and how full the context is."""
        self.last = out
        usage = out.usage
        self.read += usage.prompt - usage.cached
        self.generated += usage.generated
        pass_on(self.terminal, out.notices)
        used, limit = usage.prompt + usage.generated, self.model.context
        if out.finish_reason == "context":
            self.terminal.notice(
                "context-full",
                f"the context of {limit:,} tokens is full: the answer was cut; nothing was dropped",
            )
        elif used >= FULL * limit and not self.warned:
            self.terminal.notice(
                "context-nearly-full",
                f"the context is {100 * used // limit} % full ({used:,} of {limit:,} tokens);"
                " /clear begins anew, /undo takes turns back",
            )
        self.warned = used >= FULL * limit
