"""A sequence with its tokens: feed, fork, truncate.

The one place where tokens become cache positions. Feeding is chunked by the engine's batch size; an interrupted feed
keeps the chunks that were finished, and `ids` says which tokens those are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.step import Entry
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend

F32 = NDArray[np.float32]
Outputs = Literal["all", "last", "none"] | Sequence[int]
Check = Callable[[], None]
Told = Callable[[int], None]  # tokens read so far


class Session:
    """Your own decoding loop: `feed` ids, get logits.

    Made by `Model.session()`; usable from several threads, one call at a time. `ids` lists what the session holds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._sequence = backend.sequence()
        self.ids: list[int] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Session of {len(self.ids):,} tokens{', closed' if self._closed else ''}>"

    def feed(self, ids: Sequence[int]) -> F32:
        """Append tokens.

        Args:
            ids: at least one token id.

        Returns:
            float32 (n_vocab,), new: the logits after the last of them.

        Raises:
            RequestError: no ids, an id outside the vocabulary, or the context is full (nothing is appended).
        """
        with self._backend.lock:
            logits, _ = self.extend(ids, "last")
            return logits[0].copy()

    def extend(
        self,
        ids: Sequence[int],
        outputs: Outputs = "last",
        *,
        chunk: int | None = None,
        check: Check | None = None,
        told: Told | None = None,
    ) -> tuple[F32, F32]:
        """Append tokens and collect (logits, hidden) of those that are wanted.

        With outputs "last" the result is a view that the next step overwrites; otherwise it is new. The caller holds
        the backend's lock.
        """
        self._refuse_closed()
        wanted = checked_ids(ids, self._backend.n_vocab)
        if not wanted:
            raise RequestError("there are no tokens to read", expected="at least one id")
        self._room(len(wanted))
        if self._sequence.length < len(self.ids):  # positions that a window had left behind
            past = self.ids[self._sequence.length :]
            self._walk(past, [], None, check, None, record=False)
        if outputs == "last":
            picks: Sequence[int] = [len(wanted) - 1]
        elif outputs == "all":
            picks = range(len(wanted))
        else:
            picks = [] if outputs == "none" else sorted(outputs)
        return self._walk(wanted, picks, chunk, check, told, record=True)

    def _walk(
        self,
        ids: list[int],
        picks: Sequence[int],
        chunk: int | None,
        check: Check | None,
        told: Told | None,
        *,
        record: bool,
    ) -> tuple[F32, F32]:
        backend = self._backend
        size = min(chunk or backend.n_batch, backend.n_batch)
        parts: list[tuple[F32, F32]] = []
        marks = list(picks)
        at = k = 0
        while at < len(ids):
            n = min(size, len(ids) - at)
            end = k
            while end < len(marks) and marks[end] < at + n:
                end += 1
            if end - k > backend.n_outputs:  # fewer tokens, so that their logits fit
                end = k + backend.n_outputs
                n = marks[end - 1] - at + 1
            rows = [m - at for m in marks[k:end]]
            logits, hidden = backend.step([Entry(self._sequence, ids[at : at + n], rows)], check)
            if record:
                self.ids += ids[at : at + n]
            at, k = at + n, end
            if told is not None:
                told(at)
            if len(marks) > 1:
                parts.append((logits.copy(), hidden.copy()))
            elif rows:
                parts.append((logits, hidden))
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return np.zeros((0, backend.n_vocab), np.float32), np.zeros((0, backend.n_embd), np.float32)
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def truncate(self, n: int) -> None:
        """Forget all tokens from the n-th on; RequestError if n is not within 0 … len."""
        if not 0 <= n <= len(self.ids):
            raise RequestError("no such length", expected=f"0 to {len(self.ids):,}", got=f"{n:,}")
        with self._backend.lock:
            self._refuse_closed()
            del self.ids[n:]
            self._sequence.truncate(n if self._sequence.resumable(n) else 0)

    def fork(self) -> Session:
        """A session with the same past; what follows in one does not show in the other."""
        with self._backend.lock:
            self._refuse_closed()
            other = object.__new__(Session)
            other._backend = self._backend
            other._sequence = self._sequence.fork()
            other.ids = list(self.ids)
            other._closed = False
            return other

    def close(self) -> None:
        """Give the cache pages back; idempotent."""
        with self._backend.lock:
            if not self._closed:
                self._closed = True
                self._sequence.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Pages are only lists here: no lock is needed, and none may be taken by a finalizer.
        if not getattr(self, "_closed", True):
            self._closed = True
            self._backend.drop(self._sequence)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RequestError("this session is closed")

    def _room(self, n: int) -> None:
        limit = self._backend.n_ctx
        if len(self.ids) + n > limit:
            raise RequestError(
                "more tokens than the context holds",
                expected=f"at most {limit:,}",
                got=f"{len(self.ids) + n:,}, {len(self.ids) + n - limit:,} too many",
                hint="use a larger context (-c N, Model(context=N)) or a shorter prompt",
            )


def checked_ids(ids: Sequence[int], n_vocab: int) -> list[int]:
    """Token ids as plain ints; RequestError names the first that is outside the vocabulary."""
    out = [int(i) for i in ids]
    for k, i in enumerate(out):
        if not 0 <= i < n_vocab:
            raise RequestError(
                f"token id at index {k} is outside the vocabulary",
                expected=f"0 to {n_vocab - 1:,}",
                got=f"{i:,}",
            )
    return out
