"""A rotary embedding as tables: which pairs turn, how far per position, and how much they grow.

Architectures make one from their keys (`arch/rope_keys.py`); layers that share one share the object.
Frequencies are float64 from `quant.elementary`, so they are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quant import elementary

F64 = NDArray[np.float64]
RopeKind = Literal["norm", "neox"]  # pairs (2i, 2i + 1) · pairs (i, i + n_rot / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """The rotation of one head; components beyond `n_rot` pass unchanged.

    freqs      (n_rot / 2,) radians per position, read-only
    magnitude  factor of cos and sin (yarn; 1 elsewhere)
    """

    kind: RopeKind
    head_dim: int
    freqs: F64
    magnitude: float

    @property
    def n_rot(self) -> int:
        """Components of a head that turn."""
        return 2 * len(self.freqs)

    def cos_sin(self, positions: ArrayLike) -> tuple[F64, F64]:
        """(T,) positions -> cosines and sines, (T, n_rot / 2) float64 each, magnitude included."""
        angle = np.asarray(positions, np.float64)[:, None] * self.freqs
        sin, cos = elementary.sin_cos(angle)
        return cos * self.magnitude, sin * self.magnitude

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of the first and of the second component of every pair."""
        half = np.arange(self.n_rot // 2)
        if self.kind == "norm":
            return 2 * half, 2 * half + 1
        return half, half + self.n_rot // 2
