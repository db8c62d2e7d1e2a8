"""How much of the machine a model takes: threads, batch, context, and a plan of memory before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gguf_runtime.cache.pool import CachePlan
from gguf_runtime.engine.checks import whole
from gguf_runtime.engine.completion import Notice
from gguf_runtime.engine.loaded import ropes_of, scratch_bytes
from gguf_runtime.engine.packs import packed_bytes
from gguf_runtime.errors import MachineError, RequestError
from gguf_runtime.graph.memory import slot_bytes
from gguf_runtime.graph.plan import Plan
from gguf_runtime.graph.rows import Counts
from quant import cpu

N_BATCH = 512  # most tokens of a step
LOGITS_BYTES = 32 << 20  # most memory for the logits of a step
SMALLEST_CONTEXT = 512
MAX_THREADS = 1024
RESERVE = 48 << 20  # left free: logits of many tokens at once, and what others take meanwhile
PROGRAM = 48 << 20  # the interpreter, numpy, kernels
TOKEN_BYTES = 50  # the tokenizer's tables, for each token of the vocabulary
SINGLE_OUTPUTS = 8  # tokens of a step that want logits where one sequence runs

Context = int | Literal["max"] | None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that a model with this context takes.

    Attributes:
        weights: packed.
        cache: of one full sequence.
        buffers: between the kernels, scratch and tables.
        program: the interpreter, numpy, kernels and the tokenizer.
        available: what this process may have, the program included.
        mapped: the weights are a file's pages, which the system may drop and read again.
    """

    context: int
    weights: int
    cache: int
    buffers: int
    program: int
    available: int
    mapped: bool = False

    @property
    def total(self) -> int:
        """All of it: the peak with a full context."""
        return self.weights + self.cache + self.buffers + self.program

    @property
    def private(self) -> int:
        """What must be in memory: all but mapped weights."""
        return self.total - (self.weights if self.mapped else 0)

    @property
    def fits(self) -> bool:
        """Whether the machine has room for it."""
        return self.private <= self.available

    @property
    def slow(self) -> bool:
        """Whether weights must be read from disk again and again."""
        return self.mapped and self.total > self.available

    @property
    def cache_limit(self) -> int:
        """What all sequences together may take."""
        return max(self.cache, self.available - self.private + self.cache)

    @property
    def kept(self) -> int:
        """What prompts and answers may leave for later ones, beside `cache`; sequences go first."""
        return min(self.cache, max(0, self.available - self.private) // 2)


def default_threads(asked: int | None) -> int:
    """Threads asked for, else GGUF_RUNTIME_THREADS, else the physical performance cores that are allowed."""
    text = os.environ.get("GGUF_RUNTIME_THREADS", "")
    if asked is None and text:
        if not text.isdecimal():
            raise RequestError(
                "GGUF_RUNTIME_THREADS is no number of threads", expected="1 or more", got=text
            )
        asked = int(text)
    if asked is None:
        return cpu.cores().threads
    return whole("no such number of threads", asked, 1, MAX_THREADS)


def n_outputs(n_vocab: int, n_batch: int) -> int:
    """Tokens of a step that can want logits."""
    return max(1, min(n_batch, LOGITS_BYTES // (4 * n_vocab)))


def n_batch(n_ctx: int) -> int:
    """Most tokens of a step."""
    return min(N_BATCH, max(16, n_ctx))


class Sizer:
    """Plans memory for one model.

    Args:
        mapped: the weights are mapped from a file of packs.
    """

    def __init__(
        self,
        plan: Plan,
        cache: CachePlan,
        threads: int,
        max_memory: int | None,
        mapped: bool = False,
    ) -> None:
        self._plan, self._cache, self._threads, self._mapped = plan, cache, threads, mapped
        self._weights = sum(packed_bytes(w) for w in plan.matrices())
        self._program = PROGRAM + TOKEN_BYTES * plan.logits.width
        self._asked = max_memory
        if max_memory is not None:
            max_memory = whole("no such amount of memory, in bytes", max_memory, 1)
        # Most of the program is in memory already.
        free = max(0, cpu.memory().available_bytes - RESERVE) + self._program
        self.available = free if max_memory is None else min(free, max_memory)

    def plan(self, n_ctx: int) -> MemoryPlan:
        """What a context of so many tokens takes."""
        batch = n_batch(n_ctx)
        outputs = min(SINGLE_OUTPUTS, n_outputs(self._plan.logits.width, batch))
        lines: Mapping[Counts, int] = {"tokens": batch, "outputs": outputs}
        buffers = sum(slot_bytes(self._plan, lines))
        buffers += sum(scratch_bytes(self._plan, batch)) * self._threads
        buffers += sum(4 * n_ctx * rope.n_rot for rope in ropes_of(self._plan))
        return MemoryPlan(
            context=n_ctx,
            weights=self._weights,
            cache=self._cache.bytes_for(n_ctx, batch),
            buffers=buffers,
            program=self._program,
            available=self.available,
            mapped=self._mapped,
        )

    def choose(self, trained: int, asked: Context) -> tuple[MemoryPlan, list[Notice]]:
        """The context to load with, and what has to be said about it.

        Raises:
            MachineError: it does not fit; the message has the figures and a context that would.
        """
        chosen, notices = self.wanted(trained, asked)
        if not chosen.fits:
            raise self._refusal(chosen, trained)
        return chosen, notices

    def wanted(self, trained: int, asked: Context) -> tuple[MemoryPlan, list[Notice]]:
        """The same, whether it fits or not."""
        notices: list[Notice] = []
        if asked is not None and asked != "max":
            asked = whole("no such context, in tokens", asked, 1, also=", or max")
            chosen = self.plan(asked)
            if asked > trained:
                notices.append(
                    Notice(
                        "context-beyond-training",
                        f"a context of {asked:,} tokens is more than the {trained:,} that the model was trained with",
                    )
                )
        else:
            fits = self.largest(trained, 1.0 if asked == "max" else 0.5)
            chosen = self.plan(max(fits, min(SMALLEST_CONTEXT, trained)))
            if chosen.context < trained and asked != "max":
                notices.append(
                    Notice(
                        "context-lowered",
                        f"a context of {chosen.context:,} tokens fits half of the free memory;"
                        f" the model was trained with {trained:,} (-c max takes more)",
                    )
                )
        if chosen.slow:
            notices.append(
                Notice(
                    "weights-beyond-memory",
                    f"{_mb(chosen.weights)} of weights do not fit beside the rest into"
                    f" {_mb(chosen.available)}: they are read from disk as they are needed, slowly",
                )
            )
        return chosen, notices

    def largest(self, trained: int, share: float = 1.0) -> int:
        """Largest context up to `trained` that takes at most this share of what is available."""
        limit = self.available * share
        if self.plan(trained).private <= limit:
            return trained
        low, high = 0, trained // 64
        while low < high:
            middle = (low + high + 1) // 2
            if self.plan(middle * 64).private <= limit:
                low = middle
            else:
                high = middle - 1
        return low * 64

    def _refusal(self, plan: MemoryPlan, trained: int) -> MachineError:
        best = self.largest(min(plan.context, trained))
        more = "allow more with --max-memory, or " if self._asked is not None else ""
        if best:
            hint = f"a smaller context fits: -c {best}"
        elif not plan.mapped and plan.total - plan.weights <= plan.available:
            hint = f"{more}run it from disk, slowly: --pack-cache"
        else:
            hint = f"{more}use a smaller model"
        weights = "" if plan.mapped else f"{_mb(plan.weights)} weights + "
        return MachineError(
            f"this model with a context of {plan.context:,} tokens does not fit into memory",
            expected=f"{weights}{_mb(plan.cache)} cache + {_mb(plan.buffers)} buffers"
            f" + {_mb(plan.program)} program = {_mb(plan.private)}",
            got=f"{_mb(plan.available)} available",
            hint=hint,
        )


def _mb(n: int) -> str:
    return f"{n / 1e6:,.0f} MB"
