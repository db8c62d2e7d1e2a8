"""The table of weight types: one row each, with the facts that bodies and checks are chosen by.

Nothing else in the program names a type: loader, tile bodies, tests and the support matrix walk
`TYPES` and read the facts. Ids and names are GGML's; byte layouts stand in `quant/formats/`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from quant.errors import QuantError

if TYPE_CHECKING:
    from quant.formats.layout import Format

Kind = Literal["float", "small", "super"]


@dataclass(frozen=True, slots=True)
class Type:
    """Facts of one weight type.

    kind     float: plain values · small: one scale per 32 values · super: 256 values, integer
             sub-scales under one float scale
    center   is subtracted from the stored code (0 where codes are signed or a minimum is stored)
    group    values that share a scale or sub-scale (1 for plain values)
    minimum  a stored minimum is added (small types) or subtracted (super types)
    """

    id: int
    name: str
    values: int
    bytes: int
    module: str
    kind: Kind
    bits: int
    signed: bool
    center: int
    group: int
    minimum: bool

    @property
    def format(self) -> Format:
        """The module that decodes, encodes and packs this type, imported on first use."""
        module: Format = import_module(self.module)
        return module

    @property
    def peak(self) -> str:
        """What limits its products in registers: a kind of `quant.roofs.PEAKS`."""
        return "fma" if self.kind == "float" else "dot8" if self.bits == 8 else "dot"

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` values; QuantError unless k is a multiple of the block."""
        if k % self.values:
            raise QuantError(
                f"a row of {k:,} values cannot be {self.name}",
                expected=f"a multiple of {self.values}",
                got=f"{k:,}",
            )
        return k // self.values * self.bytes


def _row(
    id: int,
    name: str,
    values: int,
    size: int,
    kind: Kind,
    bits: int,
    signed: bool,
    center: int,
    group: int,
    minimum: bool,
) -> Type:
    module = f"quant.formats.{name.lower()}"
    return Type(id, name, values, size, module, kind, bits, signed, center, group, minimum)


# fmt: off
_ROWS = (
    #    id  name   values bytes  kind    bits signed center group minimum
    _row(0, "F32",    1,   4, "float", 32, True,   0,  1, False),
    _row(1, "F16",    1,   2, "float", 16, True,   0,  1, False),
    _row(2, "Q4_0",  32,  18, "small",  4, False,  8, 32, False),
    _row(3, "Q4_1",  32,  20, "small",  4, False,  0, 32, True),
    _row(6, "Q5_0",  32,  22, "small",  5, False, 16, 32, False),
    _row(7, "Q5_1",  32,  24, "small",  5, False,  0, 32, True),
    _row(8, "Q8_0",  32,  34, "small",  8, True,   0, 32, False),
    _row(12, "Q4_K", 256, 144, "super",  4, False,  0, 32, True),
    _row(13, "Q5_K", 256, 176, "super",  5, False,  0, 32, True),
    _row(14, "Q6_K", 256, 210, "super",  6, False, 32, 16, False),
    _row(30, "BF16",   1,   2, "float", 16, True,   0,  1, False),
)
# fmt: on

TYPES: dict[str, Type] = {t.name: t for t in _ROWS}
_BY_ID = {t.id: t for t in TYPES.values()}


def by_id(type_id: int) -> Type | None:
    """The type with this GGML id, or None where this package has none."""
    return _BY_ID.get(type_id)


def get(which: str | int | Type) -> Type:
    """The row for a name (any case), a GGML id or a row itself; QuantError lists known names."""
    if isinstance(which, Type):
        return which
    found = by_id(which) if isinstance(which, int) else TYPES.get(which.upper())
    if found is not None:
        return found
    names = sorted(TYPES)
    if isinstance(which, str):
        close = difflib.get_close_matches(which.upper(), names, n=1)
        names = close + [n for n in names if n not in close]
    raise QuantError(f"weight type {which!r} is not known", expected=f"one of {', '.join(names)}")
