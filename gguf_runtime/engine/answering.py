"""What a model can be asked for in text: the part of `Model` that makes answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.generate import Generation, Progress
from gguf_runtime.engine.job import Bell
from gguf_runtime.engine.overflow import Trimmer
from gguf_runtime.engine.request import Defaults, Request
from gguf_runtime.engine.session import Session
from gguf_runtime.engine.stream import Stream
from gguf_runtime.engine.turn import OPTIONS as TURN_OPTIONS
from gguf_runtime.engine.turn import Turn

if TYPE_CHECKING:
    from gguf_runtime.engine.aio import AsyncStream, Conductor
    from gguf_runtime.engine.completion import Completion, Notice
    from gguf_runtime.engine.prompt import Prompter
    from gguf_runtime.engine.scheduler import Scheduler
    from gguf_runtime.text.tokenizer import Tokenizer


class Answering:
    """Completions and streams; `Model` brings what they need."""

    scheduler: Scheduler  # who steps, and with what
    tokenizer: Tokenizer
    prompter: Prompter
    notices: list[Notice]
    load_s: float
    compile_s: float
    _defaults: Defaults
    _progress: Progress | None
    _conductor: Conductor | None = None  # who steps for asyncio

    def session(self, reuse: bool = False) -> Session:
        """An empty sequence, for decoding loops of your own.

        With `reuse` the first `feed` starts from what requests that began alike have read, and what
        the session holds stays for later ones when it is closed. No bit depends on it.
        """
        return Session(self.scheduler.backend, reuse)

    def complete(
        self,
        prompt: str | bytes | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Completion:
        """One answer, to its end; parameters as `stream`."""
        stream = self.stream(prompt, messages=messages, **options)
        for _ in stream:
            pass
        return stream.result

    def stream(
        self,
        prompt: str | bytes | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        bos: bool = True,
        special: bool = False,
        events: bool = False,
        profile: bool = False,
        **options: Any,
    ) -> Stream:
        """One answer, as it comes.

        Args:
            prompt: a user's message where the model has a chat template, else a text to continue.
            messages: a conversation, in place of a prompt.
            raw: continue the prompt as plain text; `bos` puts the start token before it, `special`
                lets names of control tokens in it count.
            events: yield ("text", str), ("reasoning", str) and ("tool", call) instead of text alone.
            profile: time every row of the tape; `result.profile` is the table.
            options: think (False: without reasoning; None: as the template does), think_budget (tokens
                of reasoning, then it is ended), template_args (variables for the template), tools
                (JSON schemas of what the model may call); max_tokens (with a template: to the end of
                the turn; else 256; -1: until the context is full), max_time in seconds, stop (texts),
                stop_ids, stop_on_loop (end where the answer repeats itself), on_overflow ("stop",
                "error", or "trim": drop the oldest turns where the context is full), speculate and
                reuse (False: do without; neither changes the answer), and the parameters of `Sampling`.

        Raises:
            RequestError: no prompt, a prompt longer than the context, or an option out of range.
        """
        generation = self.prepare(
            prompt, messages=messages, raw=raw, bos=bos, special=special, **options
        )

        def finished(out: Completion) -> None:
            generation.close()

        return Stream.begin(generation, finished, events=events, profile=profile)

    def astream(
        self,
        prompt: str | bytes | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        events: bool = False,
        **options: Any,
    ) -> AsyncStream:
        """One answer as it comes, for `async for`; parameters as `stream`. Call it in a running loop.

        Answers of several tasks are computed together; cancelling a task ends its own.
        """
        from gguf_runtime.engine.aio import AsyncStream, Conductor, LoopBell

        bell = LoopBell()
        generation = self.prepare(prompt, messages=messages, bell=bell, **options)
        if self._conductor is None:
            self._conductor = Conductor(self.scheduler)
        return AsyncStream(generation, bell, self._conductor, events)

    async def acomplete(
        self,
        prompt: str | bytes | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Completion:
        """One answer, to its end; parameters as `stream`."""
        stream = self.astream(prompt, messages=messages, **options)
        async for _ in stream:
            pass
        return stream.result

    def request(self, *, templated: bool, **options: Any) -> Request:
        """Options of a request made whole; RequestError names one that is unknown or wrong."""
        if templated and self.prompter.stop:
            stop = options.get("stop") or ()
            options["stop"] = [*([stop] if isinstance(stop, str) else stop), *self.prompter.stop]
        return self._defaults.request(templated=templated, **options)

    def start(
        self,
        session: Session,
        ids: Sequence[int],
        request: Request,
        finished: Callable[[Completion], None],
        *,
        events: bool = False,
        notices: tuple[Notice, ...] = (),
        profile: bool = False,
        trimmer: Trimmer | None = None,
    ) -> Stream:
        """The stream of a request on a session; what `stream` and `Chat` share."""
        generation = self._generation(session, ids, request, notices, None, trimmer)

        def ended(out: Completion) -> None:
            finished(out)
            if trimmer is not None:  # then the answer may have moved to a session of its own
                generation.close()

        return Stream.begin(generation, ended, events=events, profile=profile)

    def prepare(
        self,
        prompt: str | bytes | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        bos: bool = True,
        special: bool = False,
        bell: Bell | None = None,
        **options: Any,
    ) -> Generation:
        """An answer that has not begun, with a session of its own; what `stream` and `batch` share."""
        turn = Turn.of(**{k: options.pop(k) for k in TURN_OPTIONS if k in options})
        made = self.prompter.ids(prompt, messages, raw=raw, bos=bos, special=special, turn=turn)
        request = self.request(templated=made.templated, style=made.style, **options)
        ids, notices, trimmer = made.ids, made.notices, None
        if request.on_overflow == "trim":
            limit = self.scheduler.backend.n_ctx
            ids, notices, trimmer = self.prompter.fitted(made, messages or (), turn, limit)
        session = self.session(request.reuse)
        return self._generation(session, ids, request, notices, bell, trimmer)

    def _generation(
        self,
        session: Session,
        ids: Sequence[int],
        request: Request,
        notices: tuple[Notice, ...],
        bell: Bell | None = None,
        trimmer: Trimmer | None = None,
    ) -> Generation:
        facts = {"load_s": self.load_s, "compile_s": self.compile_s}
        made = Generation(
            self.scheduler,
            self.tokenizer,
            session,
            ids,
            request,
            self._progress,
            facts,
            bell,
            trimmer,
        )
        made.completion.notices[:0] = (*self.notices, *notices)
        return made
