"""A sequence with its tokens: feed, fork, truncate.

The one place where tokens become cache positions. Feeding is chunked by the engine's batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.border import BORDER
from gguf_runtime.engine.checks import token_ids, whole
from gguf_runtime.engine.job import BRANCH
from gguf_runtime.engine.step import Entry
from gguf_runtime.errors import RequestError

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend
    from gguf_runtime.engine.profile import Recorder

F32 = NDArray[np.float32]
Outputs = Literal["all", "last", "none"] | Sequence[int]
Check = Callable[[], None]
Told = Callable[[], None]  # called after every step


class Session:
    """Your own decoding loop: `feed` ids, get logits.

    Made by `Model.session()`; usable from several threads, one call at a time. `ids` lists what the
    session holds, `cached` how many of the first were found and not read.
    """

    def __init__(self, backend: Backend, reuse: bool = False) -> None:
        self._backend = backend
        self.sequence = backend.sequence()
        self._reuse = reuse
        self.ids: list[int] = []
        self.cached = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Session of {len(self.ids):,} tokens{', closed' if self._closed else ''}>"

    def feed(self, ids: Sequence[int], copy: bool = True) -> F32:
        """Append tokens: all of them, or none where an exception (Ctrl-C too) ends the call.

        Args:
            ids: at least one token id.
            copy: False: a view that the model's next step overwrites, whoever asks for that.

        Returns:
            float32 (n_vocab,): the logits after the last of them.

        Raises:
            RequestError: no ids, an id outside the vocabulary, the context is full, or the model's
                numbers are none.
        """
        backend = self._backend
        backend.line_up()
        try:
            with backend.turn():
                before = len(self.ids)
                try:
                    logits, _ = self.begin(ids, "last", view=True)
                    refuse_nan(logits)
                    if not before:
                        self.share()
                except BaseException:
                    del self.ids[before:]
                    self._shorten()
                    raise
                last: F32 = logits[0]
                return last.copy() if copy else last
        finally:
            backend.leave()

    def begin(self, ids: Sequence[int], outputs: Outputs = "last", **how: Any) -> tuple[F32, F32]:
        """`extend`, which in an empty session may start from what other requests have read."""
        if self.ids or not self._reuse:
            return self.extend(ids, outputs, **how)
        self._refuse_closed()
        ids = token_ids(ids, self._backend.n_vocab)
        self._room(len(ids))
        known = self.find(ids)
        if known - self.cached >= BRANCH:  # where this prompt parts from one before it
            self.extend(ids[self.cached : known], "none", **how)
            self.share()
        return self.extend(ids[len(self.ids) :], outputs, **how)

    def find(self, ids: Sequence[int]) -> int:
        """Start an empty session from what others have read of a prompt; needs the turn.

        Returns:
            How long a beginning was read before: where that is much more than what was found, a
            copy should be kept when it is read again.
        """
        if not self._reuse:
            return 0
        found, known = self._backend.match(ids)
        if found is not None:
            empty, self.sequence = self.sequence, found
            self.ids = list(ids[: found.length])
            empty.close()
        self.cached = len(self.ids)
        return known

    def settle(self, most: int) -> int:
        """Hold at most so many tokens, and nothing in the cache behind them; how many it has of them."""
        self._refuse_closed()
        if len(self.ids) > most:
            del self.ids[most:]
        self._shorten()
        return int(self.sequence.length)

    def took(self, ids: Sequence[int], n: int) -> None:
        """The cache holds the first n of these ids, which begin with those that were held."""
        self.ids += ids[len(self.ids) : n]

    def share(self) -> None:
        """Keep a copy of what is held for requests that begin alike; needs the turn."""
        if self._reuse:
            self._backend.keep(self.sequence, self.ids)

    def extend(
        self,
        ids: Sequence[int],
        outputs: Outputs = "last",
        *,
        chunk: int | None = None,
        check: Check | None = None,
        told: Told | None = None,
        recorder: Recorder | None = None,
        want: Literal["logits", "hidden"] = "logits",
        view: bool = False,
    ) -> tuple[F32, F32]:
        """Append tokens and collect (logits, hidden) of those that are wanted; one of them empty.

        What an exception leaves: the chunks that were finished, as `ids` says. The caller has the
        backend's turn. With `view` the result of one step may be memory that the next overwrites.
        """
        self._refuse_closed()
        wanted = token_ids(ids, self._backend.n_vocab)
        if not wanted:
            raise RequestError("there are no tokens to read", expected="at least one id")
        self._room(len(wanted))
        self._agree()
        if outputs == "last":
            picks: Sequence[int] = (len(wanted) - 1,)
        elif outputs == "all":
            picks = range(len(wanted))
        else:
            picks = () if outputs == "none" else sorted(outputs)
        backend = self._backend
        if view and len(wanted) <= backend.n_batch and len(picks) <= backend.n_outputs:
            pair = backend.step([Entry(self.sequence, wanted, picks)], check, recorder)
            self.ids += wanted
            return pair
        with BORDER:
            out = np.empty(
                (len(picks), backend.n_vocab if want == "logits" else backend.n_embd), np.float32
            )
        at = k = 0
        for n, rows in _chunks(len(wanted), picks, chunk or backend.n_batch, backend):
            part = wanted[at : at + n]
            pair = backend.step([Entry(self.sequence, part, rows)], check, recorder)
            out[k : k + len(rows)] = pair[0 if want == "logits" else 1]
            self.ids += part
            at, k = at + n, k + len(rows)
            if told is not None:
                told()
        other = np.empty((0, 0), np.float32)
        return (out, other) if want == "logits" else (other, out)

    def _agree(self) -> None:
        """Make the cache hold what `ids` says: an exception, or a window, may have parted them."""
        self._shorten()
        sequence, backend = self.sequence, self._backend
        past = self.ids[sequence.length :]
        for k in range(0, len(past), backend.n_batch):
            backend.step([Entry(sequence, past[k : k + backend.n_batch])])

    def _shorten(self) -> None:
        """Take from the cache what is behind `ids`; all, where that is not a place to go on."""
        n = len(self.ids)
        if self.sequence.length > n:
            self.sequence.truncate(n if self.sequence.resumable(n) else 0)

    def truncate(self, n: int) -> None:
        """Forget all tokens from the n-th on; RequestError if n is not within 0 … len.

        Where a window has let go of what position n needs, the next `feed` reads the past again.
        """
        with self._backend.turn():
            self._refuse_closed()
            n = whole("no such length", n, 0, len(self.ids))
            del self.ids[n:]
            self._shorten()

    def fork(self) -> Session:
        """A session with the same past; what follows in one does not show in the other."""
        with self._backend.turn():
            self._refuse_closed()
            other = object.__new__(Session)
            other._backend = self._backend
            other.sequence = self.sequence.fork()
            other._reuse = self._reuse
            other.ids, other.cached = list(self.ids), self.cached
            other._closed = False
            return other

    def close(self, keep: bool = True) -> None:
        """Give the cache pages back; idempotent, and never waits.

        With `Model.session(reuse=True)` they stay for prompts that begin alike, unless `keep` is
        False, until the memory is wanted.
        """
        if not self._closed:
            self._closed = True
            self._backend.drop(self.sequence, self.ids if keep and self._reuse else ())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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


def _chunks(n: int, picks: Sequence[int], size: int, backend: Backend) -> Any:
    """(tokens, their outputs) of every step: fewer tokens where their logits would not fit."""
    size = min(size, backend.n_batch)
    at = k = 0
    while at < n:
        m = min(size, n - at)
        end = k
        while end < len(picks) and picks[end] < at + m:
            end += 1
        if end - k > backend.n_outputs:
            end = k + backend.n_outputs
            m = picks[end - 1] - at + 1
        yield m, [p - at for p in picks[k:end]]
        at, k = at + m, end


def refuse_nan(logits: F32) -> None:
    """RequestError for logits that are no numbers."""
    with np.errstate(all="ignore"):
        total = np.add.reduce(logits, axis=None)  # a third of the time that looking at each takes
    if not np.isfinite(total) and not np.isfinite(logits).all():
        raise RequestError(
            "the model gave logits that are not numbers",
            hint="the file may be damaged: gguf-runtime inspect FILE",
        )
