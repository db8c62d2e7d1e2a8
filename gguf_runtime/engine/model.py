"""`Model`: one GGUF file, loaded, and everything that can be asked of it."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.arch.table import load as load_arch
from gguf_runtime.cache.pool import Cache, plan_cache
from gguf_runtime.engine.backend import Backend, ExactBackend, KernelBackend
from gguf_runtime.engine.chat import Chat
from gguf_runtime.engine.completion import Completion, Notice
from gguf_runtime.engine.generate import Generation, Request
from gguf_runtime.engine.info import Info, read_info
from gguf_runtime.engine.loaded import Loaded
from gguf_runtime.engine.prompt import NO_TEMPLATE, Prompter, read_template
from gguf_runtime.engine.sampler import SPECS as SAMPLER_SPECS
from gguf_runtime.engine.sampler import Sampler
from gguf_runtime.engine.session import Session
from gguf_runtime.engine.sizing import Context, MemoryPlan, Sizer, default_threads, n_batch, n_outputs
from gguf_runtime.engine.step import Stepper
from gguf_runtime.engine.stream import Stream
from gguf_runtime.errors import MachineError, RequestError
from gguf_runtime.graph.plan import make_plan
from gguf_runtime.sampling import Sampling
from gguf_runtime.text.tokenizer import Tokenizer
from quant import jit
from quant.errors import QuantError
from quant.pool import Pool

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]
Progress = Callable[[str, int, int], None]
Positions = Literal["all", "last"] | slice

RAW_TOKENS = 256  # of an answer without a template, unless said otherwise


class Model:
    """A model, ready to answer.

    Args:
        model: a catalog name ("smollm2"), a path, or a folder with one GGUF file.
        precision: "int8" or "int16": the activations of quantized weights (docs/fidelity in figures: README).
        cache_type: "f16", "f32" or "q8_0": keys and values.
        context: most tokens of a sequence; None: as trained, or what fits half of the free memory; "max".
        threads: None: the physical performance cores that this process may use.
        seed: for requests that give none; None: random, and reported.
        offline: loading uses no network anyway; kept with the model for programs that ask.
        max_memory: bytes that weights, cache and buffers may take.
        progress: called as (what, done, of how many) while loading.

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
        progress: Progress | None = None,
    ) -> None:
        from gguf_runtime.gguf import open_file
        from gguf_runtime.hub.resolve import resolve

        begin = time.perf_counter()
        if precision not in ("int8", "int16"):
            raise RequestError("unknown precision", expected="int8 or int16", got=precision)
        self.path = resolve(model)
        self.offline, self._seed = offline, seed
        self.notices: list[Notice] = []
        self._file: GGUFFile = open_file(self.path, scan=_scanner())
        self.tokenizer = Tokenizer.from_gguf(self._file)
        self.info: Info = read_info(self._file, self.tokenizer, self.path)
        self.prompter = Prompter(self.tokenizer, read_template(self._file, self.tokenizer))
        self.compile_s = 0.0
        self.precision, self.cache_type = precision, cache_type
        try:
            self._backend = self._make(threads, context, max_memory, progress)
        except QuantError as e:
            raise MachineError(e.what, expected=e.expected, got=e.got, hint=e.hint) from e
        self.load_s = time.perf_counter() - begin - self.compile_s
        self._finalizer = weakref.finalize(self, _release, self._backend, self._file)

    def _make(
        self, threads: int | None, context: Context, max_memory: int | None, progress: Progress | None
    ) -> Backend:
        arch = load_arch(self._file)
        if os.environ.get("GGUF_RUNTIME_EXACT", "") not in ("", "0"):
            from gguf_runtime.graph.exact import Exact

            self.threads, self.isa = 1, "exact"
            limit = context if isinstance(context, int) else self.info.n_ctx
            return ExactBackend(Exact(arch.graph, self._file), limit)
        self.threads = default_threads(threads)
        plan = make_plan(arch.graph, self.precision)
        cache = plan_cache(plan.layers, self.cache_type)
        sizer = Sizer(plan, cache, self.threads, max_memory)
        self.plan_of_memory, notices = sizer.choose(self.info.n_ctx, context)
        self.notices += notices
        n_ctx = self.plan_of_memory.context
        batch = n_batch(n_ctx)

        def told(code: str, message: str) -> None:
            self.notices.append(Notice(code, message))

        pool = Pool(self.threads, notice=told)
        loaded = Loaded(
            self._file,
            arch,
            plan,
            cache,
            self.cache_type,
            pool,
            n_ctx=n_ctx,
            n_batch=batch,
            n_outputs=n_outputs(arch.graph.n_vocab, batch),
            n_sequences=64,
            progress=progress,
            notice=told,
        )
        self.compile_s = loaded.compile_s
        self.isa = loaded.kernels.isa
        kernels = jit.load(SAMPLER_SPECS, self.isa, notice=told)
        sampler = Sampler(pool, kernels, arch.graph.n_vocab)
        return KernelBackend(Stepper(loaded, Cache(cache, n_ctx, batch)), sampler)

    # ---- facts -------------------------------------------------------------------------------------------------------

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
        cache_type: str = "f16",
        threads: int | None = None,
        max_memory: int | None = None,
    ) -> MemoryPlan:
        """What loading would take, without loading; MachineError where it would not fit."""
        from gguf_runtime.gguf import open_file
        from gguf_runtime.hub.resolve import resolve

        with open_file(resolve(model)) as file:
            arch = load_arch(file)
            plan = make_plan(arch.graph)
            sizer = Sizer(plan, plan_cache(plan.layers, cache_type), default_threads(threads), max_memory)
            return sizer.choose(file.manifest().n_ctx, context)[0]

    def __repr__(self) -> str:
        i = self.info
        return f"<Model {i.name or i.path.name}: {i.architecture} {i.type}, context {self.context:,}, {self.isa}>"

    # ---- text --------------------------------------------------------------------------------------------------------

    def tokenize(self, text: str | bytes, special: bool = False) -> list[int]:
        """Ids of a text, nothing added; `special` lets names of control tokens count."""
        return self.tokenizer.encode(text, parse_special=special)

    def detokenize(self, ids: Iterable[int]) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD, control tokens nothing."""
        return self.tokenizer.decode(list(ids), whole=False).decode("utf-8", "replace")

    def pieces(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each id."""
        return [self.tokenizer.piece(int(i), special=True) for i in ids]

    # ---- numbers -----------------------------------------------------------------------------------------------------

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
        """
        return self._states(ids, positions, chunk)[0]

    def hidden(self, ids: Sequence[int], positions: Positions = "all") -> F32:
        """What the head reads: float32 (positions, n_embd) after the final norm, new."""
        return self._states(ids, positions, None)[1]

    def _states(self, ids: Sequence[int], positions: Positions, chunk: int | None) -> tuple[F32, F32]:
        if chunk is not None and chunk < 1:
            raise RequestError("no such chunk", expected="at least 1 token", got=chunk)
        if isinstance(positions, slice):
            picks: Any = range(*positions.indices(len(ids)))
            picks = sorted(picks)
        elif positions in ("all", "last"):
            picks = positions
        else:
            raise RequestError("unknown positions", expected="all, last or a slice", got=positions)
        with self._backend.lock, Session(self._backend) as s:
            logits, hidden = s.extend(ids, picks, chunk=chunk)
            return logits.copy(), hidden.copy()

    def session(self) -> Session:
        """An empty sequence, for decoding loops of your own."""
        return Session(self._backend)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def complete(
        self, prompt: str | bytes | None = None, *, messages: Sequence[Mapping[str, Any]] | None = None, **options: Any
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
            prompt: a user's message where the model has a chat template, else a text to be continued.
            messages: a conversation, in place of a prompt.
            raw: continue the prompt as plain text; `bos` puts the start token before it, `special` lets names of
                control tokens in it count.
            events: yield ("text", str).
            profile: time every row of the tape; `result.profile` is the table.
            options: max_tokens (with a template: to the end of the turn; else 256; -1: until the context is full),
                max_time in seconds, stop (texts), stop_ids, and the parameters of `Sampling`.

        Raises:
            RequestError: no prompt, a prompt longer than the context, or an option outside its range.
        """
        notices: tuple[Notice, ...] = ()
        templated = not raw and self.prompter.template is not None
        if (prompt is None) == (messages is None):
            raise RequestError("give either a prompt or messages", got="both" if prompt is not None else "neither")
        if messages is not None:
            ids = self.prompter.encode(self.prompter.segments(messages))
        elif templated:
            assert prompt is not None
            text = prompt.decode("utf-8", "replace") if isinstance(prompt, bytes) else prompt
            ids = self.prompter.encode(self.prompter.segments([{"role": "user", "content": text}]))
        else:
            assert prompt is not None
            ids = self.prompter.plain(prompt, bos=bos, special=special)
            notices = () if raw else (NO_TEMPLATE,)
        request = self.request(templated=templated or messages is not None, **options)
        session = self.session()

        def finished(_: Completion) -> None:
            session.close()

        return self.start(session, ids, request, finished, events=events, notices=notices, profile=profile)

    def chat(self, system: str | None = None, messages: Sequence[Mapping[str, Any]] = ()) -> Chat:
        """A conversation that reads only what is new in each turn.

        Raises:
            RequestError: the model has no chat template.
        """
        if self.prompter.template is None:
            raise RequestError(
                "this model has no chat template, so it cannot hold a conversation",
                hint="complete a text instead: gguf-runtime run MODEL --raw TEXT",
            )
        return Chat(self, system, [dict(m) for m in messages])

    def request(
        self,
        *,
        templated: bool,
        max_tokens: int | None = None,
        max_time: float | None = None,
        stop: str | Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        **sampling: Any,
    ) -> Request:
        """Options of a request made whole; RequestError names one that is unknown or out of range."""
        if max_tokens is None:
            max_tokens = -1 if templated else RAW_TOKENS
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < -1:
            raise RequestError("max_tokens is outside its range", expected="-1, 0 or more", got=max_tokens)
        if max_time is not None and not max_time > 0:
            raise RequestError("max_time is outside its range", expected="seconds above 0", got=max_time)
        if sampling.get("seed") is None:
            sampling["seed"] = self._seed
        try:
            parameters = Sampling(**sampling)
        except TypeError as e:
            raise RequestError(f"unknown option: {str(e).rsplit(' ', 1)[-1]}") from e
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        return Request(
            parameters,
            max_tokens,
            frozenset(self.tokenizer.eos_ids),
            stops,
            frozenset(int(i) for i in stop_ids),
            max_time,
        )

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
        have, limit = len(session.ids), self.context
        if have + len(ids) > limit:
            over = have + len(ids) - limit
            raise RequestError(
                "the prompt is longer than the context",
                expected=f"at most {limit:,} tokens",
                got=f"{have + len(ids):,}, {over:,} too many",
                hint="use a larger context (-c N) or a shorter prompt",
            )
        generation = Generation(self._backend, self.tokenizer, session, ids, request)
        out = generation.completion
        out.timings.load_s, out.timings.compile_s = self.load_s, self.compile_s
        if profile:
            from gguf_runtime.engine.profile import profiled

            finished = profiled(self._backend, finished)
        return Stream(generation, finished, events=events, notices=(*self.notices, *notices))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release threads, memory and the file; idempotent."""
        self._finalizer()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _scanner() -> Any:
    """The compiled scan of vocabularies, where kernels are used at all."""
    if os.environ.get("GGUF_RUNTIME_EXACT", "") not in ("", "0"):
        return None
    from gguf_runtime.kernels.strings import load_scan

    try:
        return load_scan()
    except QuantError:  # said where the model's own kernels are loaded
        return None


def _release(backend: Backend, file: GGUFFile) -> None:
    backend.close()
    file.close()
