"""Many requests, answered several at a time: `Model.batch`.

Whoever asks for the next answer steps for all that run. Requests are read when there is a place for
them; where answers are to come in order, those that are done early wait for the ones before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.checks import whole
from gguf_runtime.engine.completion import Completion
from gguf_runtime.engine.job import Bell
from gguf_runtime.errors import GGUFRuntimeError, RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.engine.generate import Generation
    from gguf_runtime.engine.model import Model

Item = str | bytes | Mapping[str, Any]

WAITING = 1024  # answers that may wait for one before them
USUAL = 1024  # tokens of a sequence, for which memory is looked at beforehand


class Batch:
    """Iterator of Completion, made by `Model.batch`; for one thread at a time.

    Closing it, or leaving its `with` block, ends what runs. `parallel` is how many sequences are answered
    at once.
    """

    def __init__(
        self,
        model: Model,
        requests: Iterable[Item],
        ordered: bool,
        parallel: int | None,
        options: Mapping[str, Any],
    ) -> None:
        model.backend.turn()  # refused where the model is closed
        most = model.scheduler.most
        if parallel is None:
            parallel = min(most, max(1, model.backend.fitting(USUAL)))
        self.parallel = min(most, whole("no such number of sequences at once", parallel, 1))
        self.ordered = ordered
        self._model, self._options = model, dict(options)
        self._bell = Bell()
        self._running: dict[int, Generation] = {}
        self._done: dict[int, Completion] = {}
        self._read = self._given = 0
        self._closed = False
        self._requests: Iterator[Item] | None = iter(requests)

    def __iter__(self) -> Batch:
        return self

    def __next__(self) -> Completion:
        try:
            while not self._closed:
                self._fill()
                out = self._next()
                if out is not None:
                    self._given += 1
                    return out
                if not self._running:
                    break
                self._model.scheduler.until(self._ready, self._bell)
                self._drain()
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def _fill(self) -> None:
        """Read requests while there is a place for one more."""
        while self._requests is not None and len(self._running) < self.parallel:
            if len(self._done) >= (WAITING if self.ordered else 1):
                break
            try:
                item = next(self._requests)
            except StopIteration:
                self._requests = None
                break
            index, self._read = self._read, self._read + 1
            try:
                generation = self._model.prepare(bell=self._bell, **self._whole(item))
            except GGUFRuntimeError as e:
                self._done[index] = Completion(finish_reason="error", error=e, index=index)
                continue
            self._running[index] = generation
            generation.completion.index = index
            generation.job.patient = True
            generation.join()

    def _whole(self, item: Item) -> dict[str, Any]:
        """What `Model.prepare` takes."""
        if isinstance(item, str | bytes):
            return {**self._options, "prompt": item}
        if isinstance(item, Mapping):
            return {**self._options, **{str(k): v for k, v in item.items()}}
        raise RequestError(
            "a request is a text or a dict of options with a prompt or messages", got=show(item)
        )

    def _ready(self) -> bool:
        return any(g.job.ready for g in self._running.values())

    def _drain(self) -> None:
        """Take what was chosen, and see who is done."""
        for index, generation in list(self._running.items()):
            while not generation.done and generation.job.ready:
                generation.take()
            if generation.done:
                generation.close()
                self._done[index] = generation.completion
                del self._running[index]

    def _next(self) -> Completion | None:
        """An answer that may be given now."""
        if self.ordered:
            return self._done.pop(self._given, None)
        return self._done.pop(next(iter(self._done))) if self._done else None

    def close(self) -> None:
        """End here; idempotent."""
        self._closed, self._requests = True, None
        while self._running:
            _, generation = self._running.popitem()
            generation.cancel()
            generation.close()
        self._done.clear()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._running)} running"
        return f"<Batch, {self.parallel} at once, {state}, {self._given:,} answers given>"
