"""Many requests, answered several at a time: `Model.batch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Completion
from gguf_runtime.errors import GGUFRuntimeError, RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.engine.model import Model

Item = str | bytes | Mapping[str, Any]


class Batch:
    """Iterator of Completion, made by `Model.batch`; closing it, or leaving its `with` block, ends what runs.

    `parallel` is how many sequences are answered at once.
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
        self._model, self._options = model, dict(options)
        self._requests: Iterator[Item] | None = iter(requests)
        self._given = 0
        self.ordered = ordered
        self.parallel = parallel or 1

    def __iter__(self) -> Batch:
        return self

    def __next__(self) -> Completion:
        if self._requests is None:
            raise StopIteration
        try:
            item = next(self._requests)
        except StopIteration:
            self.close()
            raise
        index, self._given = self._given, self._given + 1
        try:
            out = self._model.complete(**self._whole(item))
        except GGUFRuntimeError as e:
            out = Completion(finish_reason="error", error=e)
        out.index = index
        return out

    def _whole(self, item: Item) -> dict[str, Any]:
        """What `Model.complete` takes."""
        if isinstance(item, str | bytes):
            return {**self._options, "prompt": item}
        if isinstance(item, Mapping):
            return {**self._options, **item}
        raise RequestError(
            "a request is a text or a dict of options with a prompt or messages", got=show(item)
        )

    def close(self) -> None:
        """End here; idempotent."""
        self._requests = None

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._requests is None else f"{self._given:,} given so far"
        return f"<Batch, {self.parallel} at once, {state}>"
