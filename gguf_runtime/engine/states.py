"""Logits and hidden states of whole sequences, at the positions that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.engine.checks import token_ids, whole
from gguf_runtime.engine.session import Session
from gguf_runtime.errors import RequestError, show

if TYPE_CHECKING:
    from gguf_runtime.engine.backend import Backend

F32 = NDArray[np.float32]
Positions = Literal["all", "last"] | slice


def states(
    backend: Backend,
    ids: Sequence[int],
    positions: Any,
    chunk: int | None,
    want: Literal["logits", "hidden"],
) -> F32:
    """(positions, width) float32, new, of a sequence that holds ids and nothing else."""
    if chunk is not None:
        chunk = whole("no such chunk", chunk, 1)
    ids = token_ids(ids, backend.n_vocab)
    picks: Any = positions
    backwards = False
    if isinstance(positions, slice):
        picks = range(len(ids))[positions]
        backwards = picks.step < 0
        picks = picks[::-1] if backwards else picks
    elif not isinstance(positions, str) or positions not in ("all", "last"):
        raise RequestError(
            "unknown positions", expected="all, last or a slice", got=show(positions)
        )
    with backend.turn(), Session(backend) as session:
        pair = session.extend(ids, picks, chunk=chunk, want=want)
    found = pair[0 if want == "logits" else 1]
    return found[::-1] if backwards else found
