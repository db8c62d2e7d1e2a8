"""`Model`: one GGUF file, loaded, and everything that can be asked of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.arch.table import check_role
from gguf_runtime.engine.batch import Batch, Item
from gguf_runtime.engine.chat import Chat
from gguf_runtime.engine.checks import whole
from gguf_runtime.engine.generate import Generation
from gguf_runtime.engine.given import prompter_of
from gguf_runtime.engine.info import read_info
from gguf_runtime.engine.job import Bell
from gguf_runtime.engine.messages import read_messages
from gguf_runtime.engine.opening import (
    Progress,
    check_kinds,
    exact_arithmetic,
    open_backend,
    plan_memory,
)
from gguf_runtime.engine.overflow import Trimmer
from gguf_runtime.engine.request import Defaults, Request, recommended
from gguf_runtime.engine.rounds import ROUNDS, Confirm
from gguf_runtime.engine.scheduler import Scheduler
from gguf_runtime.engine.session import Session, refuse_nan
from gguf_runtime.engine.sizing import Context, MemoryPlan
from gguf_runtime.engine.states import Positions, states
from gguf_runtime.engine.stream import Stream
from gguf_runtime.engine.turn import OPTIONS as TURN_OPTIONS
from gguf_runtime.engine.turn import Turn
from gguf_runtime.engine.vocabulary import compiled
from gguf_runtime.sampling import Sampling
from gguf_runtime.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.engine.completion import Completion, Notice
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]


class Model:
    """A model, ready to answer.

    Args:
        model: a catalog name ("smollm2"), hf:ORG/REPO, ollama:NAME, a path, or a folder with one
            GGUF file; docs/models.md has them all.
        precision: "int8" or "int16": the activations that meet quantized weights.
        cache_type: "f16", "f32" or "q8_0": keys and values.
        context: most tokens of a sequence; "max": as trained, if it fits; None: as trained, or what
            fits half of the free memory.
        threads: None: GGUF_RUNTIME_THREADS, else the physical performance cores that this process
            may use.
        seed: for requests that give none; None: random, and reported.
        offline: loading uses no network anyway; kept with the model for programs that ask.
        max_memory: bytes that the process may take; mapped weights do not count.
        pack_cache: keep the packed weights in a file of the cache folder and map it: later starts
            are at once, processes share it, and a model larger than memory runs, slowly.
        template: a built-in chat template ("chatml"), a file or a source, for the model's own.
        progress: called as (what, done, of how many) while loading, and while a prompt is read that
            takes longer than a second.

    Raises:
        ModelError, FileError: the file is missing, damaged or not supported.
        MachineError: not enough memory, or no kernels for this CPU.
        RequestError: an option outside its range.

    Usable from several threads; requests are put in line. Close it, or use it in a `with` block.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        precision: Literal["int8", "int16"] = "int8",
        cache_type: Literal["f16", "f32", "q8_0"] = "f16",
        context: Context = None,
        threads: int | None = None,
        seed: int | None = None,
        offline: bool = False,
        max_memory: int | None = None,
        pack_cache: bool = False,
        template: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        from gguf_runtime.gguf import open_file
        from gguf_runtime.hub.resolve import resolve

        begin = time.perf_counter()
        check_kinds(precision, cache_type)
        if seed is not None:
            seed = Sampling(seed=seed).seed
        self.path = resolve(model)
        self.offline, self.precision, self.cache_type = offline, precision, cache_type
        self._progress = progress
        self._file: GGUFFile = open_file(self.path, None if exact_arithmetic() else compiled())
        try:
            check_role(self._file)  # first: an adapter has no tokenizer to complain about
            self.tokenizer = Tokenizer.from_gguf(self._file)
            self.info = read_info(self._file, self.tokenizer, self.path)
            self.prompter, said = prompter_of(self._file, self.tokenizer, template)
            self._defaults = Defaults(
                self.tokenizer.n_vocab,
                frozenset(self.tokenizer.eos_ids),
                recommended(self._file.metadata),
                seed,
            )
            opened = open_backend(
                self._file,
                self.tokenizer.n_vocab,
                precision=precision,
                cache_type=cache_type,
                threads=threads,
                context=context,
                max_memory=max_memory,
                pack_cache=pack_cache,
                progress=progress,
            )
        except BaseException:
            self._file.close()
            raise
        self._backend = opened.backend
        self.scheduler = Scheduler(opened.backend)  # who steps, and with what
        self.threads, self.isa, self.memory = opened.threads, opened.isa, opened.memory
        self.pack_file = opened.packs
        self.notices: list[Notice] = [*opened.notices, *said]
        self.compile_s = opened.compile_s
        self.load_s = time.perf_counter() - begin - self.compile_s

    # ---- facts ---------------------------------------------------------------------------------

    @property
    def context(self) -> int:
        """Most tokens of a sequence."""
        return self._backend.n_ctx

    @property
    def backend(self) -> Backend:
        """What computes, for benchmarks and tests."""
        return self._backend

    @staticmethod
    def plan(
        model: str | os.PathLike[str],
        context: Context = None,
        *,
        precision: str = "int8",
        cache_type: str = "f16",
        threads: int | None = None,
        max_memory: int | None = None,
        pack_cache: bool = False,
    ) -> MemoryPlan:
        """What loading would take, without loading; MachineError where it would not fit."""
        from gguf_runtime.hub.resolve import resolve

        return plan_memory(
            resolve(model), context, precision, cache_type, threads, max_memory, pack_cache
        )

    def __repr__(self) -> str:
        i = self.info
        facts = f"{i.architecture} {i.type}, context {self.context:,}, {self.isa}"
        return f"<Model {i.name or i.path.name}: {facts}>"

    # ---- text ----------------------------------------------------------------------------------

    def tokenize(self, text: str | bytes, special: bool = False) -> list[int]:
        """Ids of a text, nothing added; `special` lets names of control tokens count."""
        return self.tokenizer.encode(text, parse_special=special)

    def detokenize(self, ids: Iterable[int]) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD, control tokens nothing."""
        return self.tokenizer.decode(list(ids), whole=False).decode("utf-8", "replace")

    def pieces(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each id."""
        return [self.tokenizer.piece(int(i), special=True) for i in ids]

    # ---- numbers -------------------------------------------------------------------------------

    def logits(
        self, ids: Sequence[int], positions: Positions = "all", chunk: int | None = None
    ) -> F32:
        """Logits of a sequence of its own.

        Args:
            ids: tokens; nothing is added.
            positions: "all", "last" or a slice of the indices of ids.
            chunk: tokens per step; no bit depends on it.

        Returns:
            float32 (positions, n_vocab), new.

        Raises:
            RequestError: no ids, ids outside the vocabulary or more than the context holds, or
                logits that are no numbers. MachineError: no memory for so many.
        """
        found = states(self._backend, ids, positions, chunk, "logits")
        refuse_nan(found)
        return found

    def hidden(
        self, ids: Sequence[int], positions: Positions = "all", chunk: int | None = None
    ) -> F32:
        """What the head reads: float32 (positions, n_embd) after the final norm, new."""
        return states(self._backend, ids, positions, chunk, "hidden")

    def session(self, reuse: bool = False) -> Session:
        """An empty sequence, for decoding loops of your own.

        With `reuse` the first `feed` starts from what requests that began alike have read, and what
        the session holds stays for later ones when it is closed. No bit depends on it.
        """
        return Session(self._backend, reuse)

    # ---- answers -------------------------------------------------------------------------------

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

    def batch(
        self,
        requests: Iterable[Item],
        *,
        ordered: bool = True,
        parallel: int | None = None,
        **options: Any,
    ) -> Batch:
        """Answers to many requests, several at a time; each the same as from `complete`, to the bit.

        Args:
            requests: texts, or dicts of what `complete` takes (prompt or messages, and options); read
                as they are needed.
            ordered: in the order of the requests; False: as they are done. `.index` counts from 0.
            parallel: sequences at once; None: what is fastest and fits.
            options: for every request that does not say otherwise.

        Returns:
            An iterator of Completion. A request that cannot be answered gives one with `.error` and
            finish_reason "error".
        """
        return Batch(self, requests, ordered, parallel, options)

    def chat(
        self,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        *,
        load: str | os.PathLike[str] | None = None,
        tools: Sequence[Any] = (),
        confirm: Confirm | None = None,
        max_rounds: int = ROUNDS,
    ) -> Chat:
        """A conversation that reads only what is new in each turn.

        Args:
            system: its system message.
            messages: what was said before.
            load: a file of `Chat.save`, whose messages come before those.
            tools: functions that the model may call, or schemas of such; functions are called, and
                their results read, until an answer calls none.
            confirm: asked with each call before it is made; False declines it.
            max_rounds: answers of a turn whose calls are made.

        Raises:
            RequestError: the model has no chat template, or the file holds no conversation.
            FileError: the file cannot be read.
        """
        self.prompter.refuse_without_template()
        past = read_messages(load) if load is not None else []
        said = [*past, *(dict(m) for m in messages)]
        most = whole("max_rounds is outside its range", max_rounds, 0)
        return Chat(self, system, said, tools=tools, confirm=confirm, max_rounds=most)

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
    ) -> Stream:
        """The stream of a request on a session; what `stream` and `Chat` share."""
        generation = self._generation(session, ids, request, notices)
        return Stream.begin(generation, finished, events=events, profile=profile)

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
            trimmer = self.prompter.trimmer(made, messages or (), turn, self.context)
            ids = trimmer.fit()
            notices = (*notices, *trimmer.notices)
            trimmer.notices.clear()
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

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Release threads, memory and the file; idempotent. What is running ends with an error."""
        self._backend.close()
        self._file.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
