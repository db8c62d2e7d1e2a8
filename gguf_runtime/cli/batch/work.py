"""The loop of `batch`: items to the engine, answers to the output, each as soon as it is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gguf_runtime.cli.batch.line import encoded, facts_of, failed, shaped
from gguf_runtime.cli.batch.output import Output
from gguf_runtime.cli.batch.progress import Progress
from gguf_runtime.cli.batch.request import Item
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime import Model


class Work:
    """Answers items. `form` is "openai" or anything else; `model` is the name as it was typed."""

    def __init__(self, output: Output, progress: Progress, form: str, model: str) -> None:
        self._output, self._progress = output, progress
        self._form, self._model = form, model
        self._waiting: dict[int, Item] = {}  # given to the engine and not answered yet
        self._refused: deque[Item] = deque()  # not given to it, and not written yet

    def run(self, m: Model, items: Iterator[Item], parallel: int | None, *, ordered: bool) -> None:
        """Answer all items; a request that cannot be answered becomes an error line.

        Raises:
            Whatever is wrong with more than a request: then the rest cannot be answered either.
        """
        requests = self._requests(items, ordered)
        with m.batch(requests, ordered=ordered, parallel=parallel) as answers:
            for out in answers:
                assert out.index is not None
                item = self._waiting.pop(out.index)
                if out.finish_reason == "interrupted":
                    continue
                if out.error is not None and not isinstance(out.error, RequestError):
                    raise out.error
                self._refuse(before=item.line)
                self._write(item, facts_of(item, out, out.error, m.notices))
        self._refuse()

    def _requests(self, items: Iterator[Item], ordered: bool) -> Iterator[dict[str, Any]]:
        """What the engine reads as it needs it; lines that cannot be asked are written meanwhile."""
        for index, item in enumerate(self._asked(items, ordered)):
            assert item.request is not None
            self._waiting[index] = item
            yield item.request

    def _asked(self, items: Iterator[Item], ordered: bool) -> Iterator[Item]:
        for item in items:
            if item.request is not None:
                yield item
                continue
            self._refused.append(item)
            if not (ordered and self._waiting):
                self._refuse()

    def _refuse(self, before: int | None = None) -> None:
        """Write the error lines that are due."""
        while self._refused and (before is None or self._refused[0].line < before):
            item = self._refused.popleft()
            assert item.error is not None
            self._write(item, failed(item, item.error))

    def _write(self, item: Item, facts: dict[str, Any]) -> None:
        self._output.append(encoded(shaped(item, facts, self._form, self._model)))
        self._progress.count(facts, error="error" in facts)
