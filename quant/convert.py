"""Blocks as they stand in a file <-> float32, for whole matrices and with checks."""

from __future__ import annotations

import numpy as np

from quant import types
from quant.errors import QuantError
from quant.formats.layout import F32, U8
from quant.types import Type


def blocks_of(blocks: U8, t: Type) -> U8:
    """(rows, bytes per row) -> (rows, n_blocks, bytes), a view; QuantError on other shapes."""
    shape, dtype = np.shape(blocks), getattr(blocks, "dtype", None)
    if dtype != np.uint8 or len(shape) != 2:
        raise QuantError(
            f"blocks of {t.name} must be a matrix of bytes",
            expected="uint8 (rows, bytes per row)",
            got=f"{dtype or type(blocks).__name__} {shape}",
        )
    if shape[1] % t.bytes:
        raise QuantError(
            f"a row of {shape[1]:,} bytes is not a whole number of {t.name} blocks",
            expected=f"a multiple of {t.bytes}",
            got=f"{shape[1]:,}",
        )
    return blocks.reshape(shape[0], shape[1] // t.bytes, t.bytes)


def dequantize(blocks: U8, type: str | int | Type) -> F32:
    """Decode weights.

    Args:
        blocks: (rows, bytes per row) uint8, as in a GGUF file; only read.
        type: a row of `TYPES`, its name or its GGML id.

    Returns:
        (rows, k) float32, new; llama.cpp's values bit for bit.

    Raises:
        QuantError: the type is not known, or the rows are not whole blocks of it.
    """
    t = types.get(type)
    whole = blocks_of(blocks, t)
    if not whole.size:
        return np.zeros((whole.shape[0], whole.shape[1] * t.values), np.float32)
    return t.format.decode(whole)


def quantize(x: F32, type: str | int | Type, importance: F32 | None = None) -> U8:
    """Encode weights.

    Args:
        x: (rows, k) float32, finite; only read.
        type: a row of `TYPES`, its name or its GGML id.
        importance: (k,) float32 >= 0, the weight of each column's squared error. The K types
            use it; types whose quantizer is a fixed rule ignore it.

    Returns:
        (rows, bytes per row) uint8, new.

    Raises:
        QuantError: the type is not known, k is not a multiple of its block, x is not a float32
            matrix or not finite, or importance does not fit.
    """
    t = types.get(type)
    shape, dtype = np.shape(x), getattr(x, "dtype", None)
    if dtype != np.float32 or len(shape) != 2:
        raise QuantError(
            "weights to quantize must be a matrix",
            expected="float32 (rows, k)",
            got=f"{dtype or x.__class__.__name__} {shape}",
        )
    row_bytes = t.row_bytes(shape[1])
    if t.kind != "float" and not np.isfinite(x).all():
        row = int(np.argmin(np.isfinite(x).all(1)))
        raise QuantError(
            f"row {row:,} has a value that {t.name} cannot hold",
            expected="finite values",
            got="infinity or NaN",
        )
    if importance is not None:
        importance = np.asarray(importance, np.float32)
        if importance.shape != shape[1:] or not (importance >= 0).all():
            raise QuantError(
                "importance does not fit the columns",
                expected=f"{shape[1]:,} values >= 0",
                got=f"shape {importance.shape}",
            )
    if not x.size:
        return np.zeros((shape[0], row_bytes), np.uint8)
    return t.format.encode(x, importance).reshape(shape[0], row_bytes)
