"""Checks of what callers give, whatever it is: RequestError with the allowed range."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from gguf_runtime.errors import RequestError, show


def one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise RequestError(f"unknown {name}", expected=" or ".join(allowed), got=show(value))


def whole(what: str, value: Any, low: int, high: int | None = None, also: str = "") -> int:
    """A whole number within a range; `also` names what else would have been right."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or value < low or (high is not None and value > high):
        expected = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
        raise RequestError(what, expected=expected + also, got=show(value))
    return int(value)


def seconds(what: str, value: Any) -> float:
    """A time span."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or math.isnan(value) or value <= 0:
        raise RequestError(what, expected="seconds above 0", got=show(value))
    return float(value)


def texts(what: str, value: Any) -> tuple[str, ...]:
    """A text, or several, none of them empty."""
    many = (value,) if isinstance(value, str) else value
    if isinstance(many, bytes) or not isinstance(many, Iterable):
        raise RequestError(f"{what} is neither a text nor a list of texts", got=show(value))
    found = tuple(many)
    for text in found:
        if not isinstance(text, str) or not text:
            raise RequestError(f"a {what} text is no text, or empty", got=show(text))
    return found


def token_ids(ids: Any, n_vocab: int) -> list[int]:
    """Token ids as plain ints; the error names the first that is none of the vocabulary."""
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | Iterable):
        raise RequestError("token ids are a list of whole numbers", got=show(ids))
    found = []
    for k, i in enumerate(ids):
        if type(i) is not int:
            if isinstance(i, bool) or not isinstance(i, int | np.integer):
                raise RequestError(f"token id at index {k} is no whole number", got=show(i))
            i = int(i)
        if not 0 <= i < n_vocab:
            raise RequestError(
                f"token id at index {k} is outside the vocabulary",
                expected=f"0 to {n_vocab - 1:,}",
                got=f"{i:,}",
            )
        found.append(i)
    return found
