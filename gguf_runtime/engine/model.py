"""`Model`: one GGUF file, loaded, and everything that can be asked of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.arch.table import check_role
from gguf_runtime.engine.answering import Answering
from gguf_runtime.engine.batch import Batch, Item
from gguf_runtime.engine.chat import Chat
from gguf_runtime.engine.checks import whole
from gguf_runtime.engine.given import prompter_of
from gguf_runtime.engine.info import read_info
from gguf_runtime.engine.messages import read_messages
from gguf_runtime.engine.opening import (
    Progress,
    check_kinds,
    exact_arithmetic,
    open_backend,
    plan_memory,
)
from gguf_runtime.engine.request import Defaults, recommended
from gguf_runtime.engine.rounds import ROUNDS, Confirm
from gguf_runtime.engine.scheduler import Scheduler
from gguf_runtime.engine.session import refuse_nan
from gguf_runtime.engine.sizing import Context, MemoryPlan
from gguf_runtime.engine.states import Positions, states
from gguf_runtime.engine.vocabulary import compiled
from gguf_runtime.sampling import Sampling
from gguf_runtime.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.engine.completion import Notice
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]


class Model(Answering):
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
        self._known_breakers: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}
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
                self._breakers,
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

    # ---- many answers -------------------------------------------------------------------------

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

    def _breakers(self, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """What ends a run for DRY, as ids; found once for the same texts."""
        from gguf_runtime.engine.breakers import breakers_of

        found = self._known_breakers.get(tuple(texts))
        if found is None:
            found = self._known_breakers[tuple(texts)] = breakers_of(self.tokenizer, texts)
        return found

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Release threads, memory and the file; idempotent. What is running ends with an error."""
        self._backend.close()
        self._file.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
