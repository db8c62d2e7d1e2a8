"""The steps of llama.cpp's ruled quantizers: float32 in a stated order, so bytes are the same.

The code uses the float32 scale, the block stores it as float16; 1 / d is one division.
"""

from __future__ import annotations

import numpy as np

from quant.formats.layout import F32, U8


def reciprocal(d: F32) -> F32:
    """1 / d in one float32 division, 0 where d is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(d == 0, np.float32(0), np.float32(1) / d)


def half_away(x: F32) -> F32:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= np.float32(0.5), np.sign(x), np.float32(0))


def signed(g: F32, center: int) -> tuple[F32, U8]:
    """Groups (..., 32) -> d (...) and codes: the first value of largest magnitude is -center d."""
    at = np.abs(g).argmax(-1)[..., None]
    d = np.take_along_axis(g, at, -1)[..., 0] / np.float32(-center)
    q = np.trunc(g * reciprocal(d)[..., None] + np.float32(center + 0.5))
    return d, np.minimum(q, 2 * center - 1).astype(np.uint8)


def span(g: F32, top: int) -> tuple[F32, F32, U8]:
    """Groups (..., 32) -> d, minimum (...) and codes, so that the range is `top` steps wide."""
    low = g.min(-1)
    d = (g.max(-1) - low) / np.float32(top)
    q = np.trunc((g - low[..., None]) * reciprocal(d)[..., None] + np.float32(0.5))
    return d, low, q.astype(np.uint8)
