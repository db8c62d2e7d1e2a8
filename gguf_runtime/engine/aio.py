"""Answers for asyncio: an event loop waits for nobody, so a thread of their own steps for them.

One thread for all of a model's; it starts with the first answer and ends when there is none left. An
answer that is not read pauses, a task that is cancelled ends its sequence.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gguf_runtime.engine.completion import Completion
from gguf_runtime.engine.job import Bell

if TYPE_CHECKING:
    from gguf_runtime.engine.generate import Generation
    from gguf_runtime.engine.scheduler import Scheduler


class LoopBell(Bell):
    """Rung by who steps, waited for in an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task that waits."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._rung.set)

    async def rung(self) -> None:
        """Return when it is rung, or was since the last time."""
        await self._rung.wait()
        self._rung.clear()


class Conductor:
    """The thread that steps for answers that no thread waits for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()  # over `_followed` and `_thread`
        self._followed: list[Generation] = []
        self._thread: threading.Thread | None = None
        self._bell = Bell()

    def follow(self, generation: Generation) -> None:
        """Step for an answer, which has joined, until it is over."""
        with self._lock:
            self._followed.append(generation)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="gguf-runtime asyncio", daemon=True
                )
                self._thread.start()
        self._bell.ring()

    def go_on(self) -> None:
        """Something was read: who had paused may have room again."""
        self._bell.ring()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._followed = [g for g in self._followed if not g.done]
                if not self._followed:
                    self._thread = None
                    return
            try:
                self._scheduler.until(self._idle, self._bell)
            except Exception as e:  # noqa: BLE001 - raised in the tasks that wait
                with self._lock:
                    failed, self._followed = self._followed, []
                for g in failed:
                    g.job.fail(e)
                    g.job.bell.ring()
                continue
            self._bell.wait()  # for a reader

    def _idle(self) -> bool:
        return all(g.job.over or g.job.paused for g in list(self._followed))


class AsyncStream:
    """Asynchronous iterator of what `Stream` gives, made by `Model.astream`, with the same `result`.

    Leaving the loop early, `aclose()`, the end of an `async with` block or cancelling the task ends it.
    """

    def __init__(
        self, generation: Generation, bell: LoopBell, conductor: Conductor, events: bool
    ) -> None:
        self._generation, self._bell, self._conductor = generation, bell, conductor
        self._events = events
        self._pieces: deque[Any] = deque()  # to be given before more is taken
        self._begun = self._closed = False

    @property
    def result(self) -> Completion:
        """The answer, as far as it was given."""
        if not self._closed:
            self._generation.update()
        return self._generation.completion

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            while not self._pieces and self._take():
                await self._bell.rung()
        except BaseException:  # cancelled, say
            self.close()
            raise
        if self._pieces and not self._closed:
            return self._pieces.popleft()
        self.close()
        job = self._generation.job
        if job.error is not None:
            error, job.error = job.error, None
            raise error
        raise StopAsyncIteration

    def _take(self) -> bool:
        """Collect what can be given; whether there is nothing yet and more to come."""
        generation = self._generation
        if not self._begun:
            self._begun = True
            generation.join()
            self._conductor.follow(generation)
        while not self._pieces and not generation.done:
            paused = generation.job.paused
            events = generation.take()
            if paused:
                self._conductor.go_on()
            if events is None and not generation.job.ready:
                return True
            for kind, value in events or ():
                if self._events:
                    self._pieces.append((kind, value))
                elif kind == "text":
                    self._pieces.append(value)
        return False

    def close(self) -> None:
        """Stop here; idempotent, and waits for nothing."""
        if not self._closed:
            self._closed = True
            self._generation.cancel()
            self._generation.close()
            self._conductor.go_on()

    async def aclose(self) -> None:
        """Stop here; idempotent."""
        self.close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<AsyncStream, {self._generation.completion.usage.generated} tokens so far>"
