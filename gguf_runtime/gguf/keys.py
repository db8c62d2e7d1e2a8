"""Typed access to metadata: a kind and a range for every key that is read.

    keys = Keys(file)
    keys.arch_int("block_count", low=1)                 # llama.block_count
    keys.arch_float("rope.freq_base", 10000.0, low=1.0)
    keys.arch_ints("attention.head_count_kv", 30, low=0)  # one number, or one per layer

A missing key without a default, a wrong kind or a value out of range raises ModelError with the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np

from gguf_runtime.errors import ModelError, escape, show
from gguf_runtime.gguf.strings import StringArray
from gguf_runtime.gguf.values import Metadata, Value

__all__ = ["REQUIRED", "Keys"]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
T = TypeVar("T")
LARGEST_COUNT = (1 << 31) - 1
WIDTH = 1 << 24  # far above any model, small enough that products fit 64 bits

# Inside `Keys` the plain names are its methods.
Bool: TypeAlias = bool
Int: TypeAlias = int
Float: TypeAlias = float
Str: TypeAlias = str


class _HasMetadata(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def architecture(self) -> str: ...


class Keys:
    """Reads keys of one file; `arch` (its architecture by default) is the prefix of `arch_…`."""

    def __init__(self, file: _HasMetadata, arch: Str | None = None) -> None:
        self.path = file.path
        self.metadata = file.metadata
        self.arch = file.architecture if arch is None else arch

    def __contains__(self, key: object) -> Bool:
        return key in self.metadata

    def key(self, suffix: Str) -> Str:
        """`suffix` with the prefix of the architecture."""
        return f"{self.arch}.{suffix}"

    def int(
        self,
        key: Str,
        default: T | _Required = REQUIRED,
        *,
        low: Int = 0,
        high: Int = LARGEST_COUNT,
    ) -> Int | T:
        """A whole number from `low` to `high`; the default, unchecked, where the key is missing."""
        if key not in self.metadata:
            return self._default(key, default)
        value = self.metadata[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_kind(key, "a whole number")
        if not low <= value <= high:
            raise self._out_of_range(key, f"a number from {low:,} to {high:,}", value)
        return value

    def float(
        self,
        key: Str,
        default: T | _Required = REQUIRED,
        *,
        low: Float = -math.inf,
        high: Float = math.inf,
    ) -> Float | T:
        """A finite number from `low` to `high`."""
        if key not in self.metadata:
            return self._default(key, default)
        value = self.metadata[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong_kind(key, "a number")
        if not (math.isfinite(value) and low <= value <= high):
            raise self._out_of_range(key, _range(low, high), value)
        return float(value)

    def bool(self, key: Str, default: T | _Required = REQUIRED) -> Bool | T:
        """A truth value; whole numbers 0 and 1 count as such."""
        if key not in self.metadata:
            return self._default(key, default)
        value = self.metadata[key]
        if isinstance(value, int) and value in (0, 1):
            return value == 1
        raise self._wrong_kind(key, "true or false")

    def str(self, key: Str, default: T | _Required = REQUIRED) -> Str | T:
        """UTF-8 text."""
        if key not in self.metadata:
            return self._default(key, default)
        value = self.metadata[key]
        if isinstance(value, str):
            return value
        if isinstance(value, memoryview):  # too long to be read at once by everyone
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                pass
        raise self._wrong_kind(key, "UTF-8 text")

    def ints(
        self,
        key: Str,
        n: Int,
        default: T | _Required = REQUIRED,
        *,
        low: Int = 0,
        high: Int = LARGEST_COUNT,
    ) -> tuple[Int, ...] | T:
        """`n` whole numbers: an array of that length, or one number for all."""
        if key not in self.metadata:
            return self._default(key, default)
        numbers = self._numbers(key, n, "iub", "whole numbers")
        for value in numbers:
            if not low <= value <= high:
                raise self._out_of_range(key, f"numbers from {low:,} to {high:,}", value)
        return tuple(int(value) for value in numbers)

    def floats(
        self,
        key: Str,
        n: Int,
        default: T | _Required = REQUIRED,
        *,
        low: Float = -math.inf,
        high: Float = math.inf,
    ) -> tuple[Float, ...] | T:
        """`n` finite numbers: an array of that length, or one number for all."""
        if key not in self.metadata:
            return self._default(key, default)
        numbers = self._numbers(key, n, "iuf", "numbers")
        for value in numbers:
            if not (math.isfinite(value) and low <= value <= high):
                raise self._out_of_range(key, _range(low, high), value)
        return tuple(float(value) for value in numbers)

    def strings(self, key: Str, default: T | _Required = REQUIRED) -> StringArray | T:
        """A lazy array of strings."""
        if key not in self.metadata:
            return self._default(key, default)
        value = self.metadata[key]
        if not isinstance(value, StringArray):
            raise self._wrong_kind(key, "an array of strings")
        return value

    def choice(self, key: Str, choices: Mapping[Str, T], default: T | _Required = REQUIRED) -> T:
        """The value that belongs to a word; ModelError with all words where it is none of them."""
        if key not in self.metadata:
            return self._default(key, default)
        word = self.str(key)
        if word not in choices:
            raise self._out_of_range(key, f"one of {', '.join(sorted(choices))}", word)
        return choices[word]

    def arch_int(
        self,
        suffix: Str,
        default: T | _Required = REQUIRED,
        *,
        low: Int = 0,
        high: Int = LARGEST_COUNT,
    ) -> Int | T:
        """`int` of an architecture's key."""
        return self.int(self.key(suffix), default, low=low, high=high)

    def arch_float(
        self,
        suffix: Str,
        default: T | _Required = REQUIRED,
        *,
        low: Float = -math.inf,
        high: Float = math.inf,
    ) -> Float | T:
        """`float` of an architecture's key."""
        return self.float(self.key(suffix), default, low=low, high=high)

    def arch_bool(self, suffix: Str, default: T | _Required = REQUIRED) -> Bool | T:
        """`bool` of an architecture's key."""
        return self.bool(self.key(suffix), default)

    def arch_str(self, suffix: Str, default: T | _Required = REQUIRED) -> Str | T:
        """`str` of an architecture's key."""
        return self.str(self.key(suffix), default)

    def arch_ints(
        self,
        suffix: Str,
        n: Int,
        default: T | _Required = REQUIRED,
        *,
        low: Int = 0,
        high: Int = LARGEST_COUNT,
    ) -> tuple[Int, ...] | T:
        """`ints` of an architecture's key."""
        return self.ints(self.key(suffix), n, default, low=low, high=high)

    def arch_floats(
        self,
        suffix: Str,
        n: Int,
        default: T | _Required = REQUIRED,
        *,
        low: Float = -math.inf,
        high: Float = math.inf,
    ) -> tuple[Float, ...] | T:
        """`floats` of an architecture's key."""
        return self.floats(self.key(suffix), n, default, low=low, high=high)

    def _numbers(self, key: Str, n: Int, kinds: Str, words: Str) -> list[Int | Float]:
        value = self.metadata[key]
        if isinstance(value, int | float):
            if "f" not in kinds and isinstance(value, float):
                raise self._wrong_kind(key, words)
            return [value] * n
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise self._wrong_kind(key, words)
        if len(value) != n:
            raise ModelError(
                f"key {escape(key)} is an array of the wrong length",
                where=self.path,
                expected=f"{n:,} {words}",
                got=f"{len(value):,}",
            )
        numbers: list[Int | Float] = value.tolist()
        return numbers

    def _default(self, key: Str, default: T | _Required) -> T:
        if isinstance(default, _Required):
            raise ModelError(
                f"key {escape(key)} is missing",
                where=self.path,
                hint="the file was made by an old or faulty converter: get another file of the model",
            )
        return default

    def _wrong_kind(self, key: Str, expected: Str) -> ModelError:
        return ModelError(
            f"key {escape(key)} is of the wrong kind",
            where=self.path,
            expected=expected,
            got=f"{self.metadata.kind(key)} {_brief(self.metadata[key])}".rstrip(),
        )

    def _out_of_range(self, key: Str, expected: Str, got: object) -> ModelError:
        return ModelError(
            f"key {escape(key)} is out of range",
            where=self.path,
            expected=expected,
            got=show(got),
        )


def _brief(value: Value) -> str:
    return show(value, 60) if isinstance(value, int | float | str | bytes) else ""


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f"a finite number of at least {low:,g}"
    return f"a number from {low:,g} to {high:,g}"
