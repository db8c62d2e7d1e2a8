"""Rows of argument slots: 8 bytes each, addresses, counts and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def row(names: Sequence[str], **values: NDArray[Any] | int | float) -> I64:
    """The slots of a kernel's ARGS: an array becomes its address, what is not named is 0.

    The row does not own the arrays: they must live as long as it is used.
    """
    out = np.zeros(len(names), np.int64)
    for name, x in values.items():
        slot = out[names.index(name) :][:1]
        if isinstance(x, np.ndarray):
            slot[0] = x.ctypes.data
        elif isinstance(x, float):
            slot.view(np.float64)[0] = x
        else:
            slot[0] = x
    return out
