"""Weights by name: `w.layers[3].attn_q`, checked against what the architecture expects.

Names are GGUF's, without `blk.N.` and `.weight`. A parameter is a matrix or a vector with, where the
file has one, its bias. Two ways in which files differ are settled here, so that architectures need
not know of them: a tensor that stands for several (`attn_qkv` for q, k and v) is handed out as
ranges of its rows, and a missing head is the tied embedding.
A missing, extra or misshapen tensor, or one of a type without kernels, is one error that names all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import ModelError
from quant.types import TYPES, Type

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile

F32 = NDArray[np.float32]

NAMED = 40  # faults of a kind that one message names


@dataclass(frozen=True, slots=True)
class Weight:
    """Rows `first_row` … `first_row + rows` of a tensor of the file, `k` values each.

    A norm's vector is one row; a bias is `rows` rows of one value, so that it can be cut like the
    matrix that it belongs to.
    """

    tensor: str
    qtype: Type
    k: int
    rows: int
    first_row: int = 0


@dataclass(frozen=True, slots=True)
class Param:
    """A matrix or a vector, and its bias."""

    weight: Weight
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """What an architecture expects of one parameter; see `matrix` and `vector`."""

    k: int
    rows: int | None
    is_vector: bool
    bias: bool = False
    optional: bool = False
    tied: str | None = None
    fused: str | None = None


def matrix(
    k: int,
    rows: int | None,
    *,
    bias: bool = False,
    tied: str | None = None,
    fused: str | None = None,
) -> Spec:
    """A matrix of `rows` rows (None: any number) of `k` values.

    Args:
        k: values per row, the width of what it is multiplied by.
        rows: the width of the result.
        bias: whether the file may hold a bias.
        tied: the parameter that stands in where the tensor is missing.
        fused: the tensor that may hold this one and others, in the order in which they are listed.
    """
    return Spec(k, rows, False, bias=bias, tied=tied, fused=fused)


def vector(n: int, *, optional: bool = False) -> Spec:
    """A vector of `n` float values."""
    return Spec(n, 1, True, optional=optional)


@dataclass(frozen=True, slots=True)
class Layer:
    """The parameters of one layer; attribute access by GGUF name."""

    params: Mapping[str, Param]

    def __getattr__(self, name: str) -> Param:
        return _param(self.params, name)


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of a model; `layers[i]` holds those of layer i."""

    file: GGUFFile
    params: Mapping[str, Param]
    layers: tuple[Layer, ...]

    def __getattr__(self, name: str) -> Param:
        return _param(self.params, name)

    def get(self, name: str) -> Param | None:
        """An optional parameter, None where the file has none."""
        return self.params.get(name)

    def values(self, weight: Weight) -> F32:
        """(rows, k) decoded values, new."""
        return decode(self.file, weight)


def decode(file: GGUFFile, weight: Weight) -> F32:
    """(rows, k) values that the blocks of a weight stand for."""
    end = weight.first_row + weight.rows
    data = file.tensor_bytes(weight.tensor)
    if weight.k == 1:  # a bias: the tensor is one row
        return _decode(data, weight.qtype).reshape(-1, 1)[weight.first_row : end]
    return _decode(data[weight.first_row : end], weight.qtype)


def _decode(rows: NDArray[np.uint8], qtype: Type) -> F32:
    blocks = rows.reshape(len(rows), -1, qtype.bytes)
    return qtype.format.decode(blocks).reshape(len(rows), -1)


def _param(params: Mapping[str, Param], name: str) -> Param:
    try:
        return params[name]
    except KeyError:
        raise AttributeError(name) from None


def bind(
    file: GGUFFile, model: Mapping[str, Spec], layers: Sequence[Mapping[str, Spec]]
) -> Weights:
    """The file's tensors as the parameters that are expected, or one ModelError.

    Args:
        file: an open GGUF file.
        model: parameters outside the layers, by name.
        layers: for every layer its parameters by name.
    """
    binding = _Binding(file)
    params = binding.params("", model)
    bound = tuple(Layer(binding.params(f"blk.{i}.", specs)) for i, specs in enumerate(layers))
    binding.check()
    return Weights(file, params, bound)


@dataclass(slots=True)
class _Binding:
    """What was found so far, and every fault."""

    file: GGUFFile
    used: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def params(self, prefix: str, specs: Mapping[str, Spec]) -> dict[str, Param]:
        fused: dict[str, list[str]] = {}
        for name, spec in specs.items():
            if spec.fused and f"{prefix}{spec.fused}.weight" in self.file.tensors:
                fused.setdefault(spec.fused, []).append(name)
        found: dict[str, Param] = {}
        for whole, names in fused.items():
            found.update(self._split(prefix + whole, {name: specs[name] for name in names}))
        for name, spec in specs.items():
            if spec.fused in fused:
                continue
            param = self._whole(prefix + name, spec)
            if param is None and spec.tied is not None:
                param = found.get(spec.tied)
            elif param is None and not spec.optional:
                self.missing.append(f"{prefix}{name}.weight")
            if param is not None:
                found[name] = param
        return found

    def _whole(self, name: str, spec: Spec) -> Param | None:
        if f"{name}.weight" not in self.file.tensors:
            return None
        weight = self._weight(f"{name}.weight", spec.k, spec.rows, spec.is_vector)
        bias = self._bias(f"{name}.bias", weight.rows) if spec.bias else None
        return Param(weight, bias)

    def _split(self, name: str, parts: Mapping[str, Spec]) -> dict[str, Param]:
        rows = [part.rows or 0 for part in parts.values()]
        k = next(iter(parts.values())).k
        whole = self._weight(f"{name}.weight", k, sum(rows), False)
        has_bias = any(part.bias for part in parts.values())
        bias = self._bias(f"{name}.bias", sum(rows)) if has_bias else None
        found, first = {}, 0
        for part, n in zip(parts, rows, strict=True):
            weight = Weight(whole.tensor, whole.qtype, k, n, first)
            cut = None if bias is None else Weight(bias.tensor, bias.qtype, 1, n, first)
            found[part] = Param(weight, cut)
            first += n
        return found

    def _bias(self, name: str, n: int) -> Weight | None:
        if name not in self.file.tensors:
            return None
        found = self._weight(name, n, 1, True)
        return Weight(name, found.qtype, 1, n)

    def _weight(self, name: str, k: int, rows: int | None, is_vector: bool) -> Weight:
        info = self.file.tensors[name]
        self.used.add(name)
        shape = tuple(info.shape)
        if rows is None and len(shape) == 2:
            rows = max(shape[1], 1)
        expected = (k,) if is_vector else (k, rows)
        if shape != expected:
            self.wrong.append(f"{name} has shape {_shape(shape)}, expected {_shape(expected)}")
        qtype = info.qtype
        if qtype is None:
            known_types = ", ".join(TYPES)
            self.wrong.append(
                f"{name} is {info.type_name}, a type without kernels (there are: {known_types})"
            )
        elif is_vector and qtype.kind != "float":
            self.wrong.append(f"{name} is {qtype.name}, expected F32, F16 or BF16")
        known = qtype if qtype is not None else _UNKNOWN
        return Weight(name, known, k, rows or 1)

    def check(self) -> None:
        """Raise what was found wrong, all in one."""
        extra = [name for name in self.file.tensors if name not in self.used]
        facts = []
        if self.missing:
            facts.append(f"missing: {_list(self.missing, ', ')}")
        if extra:
            facts.append(f"not part of this architecture: {_list(extra, ', ')}")
        if self.wrong:
            facts.append(_list(self.wrong, "; "))
        if facts:
            raise ModelError(
                f"the tensors do not fit the architecture: {'; '.join(facts)}", where=self.file.path
            )


# Stands in while faults are collected; `check` raises before anyone reads it.
_UNKNOWN = Type(-1, "unknown", 1, 1, "", "float", 0, False, 0, 1, False)


def _list(names: Sequence[str], separator: str) -> str:
    """All of them, unless a file is so wrong that nobody would read on."""
    more = len(names) - NAMED
    return separator.join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _shape(shape: Sequence[int | None]) -> str:
    return f"({', '.join('any' if n is None else f'{n:,}' for n in shape)})"
