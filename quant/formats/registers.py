"""Strips in registers: where things stand in a block of 16 rows, and codes of one k-step as bytes.

A block of a strip is

    d f16[16] | m or dmin f16[16], if any | sub-scales of super types | groups of 32 values

A group is 4 nibble units (4 bits), followed by one unit of high bits (5 bits); two times two nibble
units and one of 2-bit fields (6 bits); or 8 units of bytes (8 bits). See `quant.formats.layout` for
the same in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quant.simd.layout import Codes
from quant.simd.values import Addr, B
from quant.types import Type

if TYPE_CHECKING:
    from quant.simd.words import Words

GROUP_BYTES = {4: 256, 5: 320, 6: 384, 8: 512}  # by bits; 16 rows x 32 values


@dataclass(frozen=True, slots=True)
class StripBlock:
    """Byte offsets inside one block of a strip."""

    size: int
    m: int  # minimum or dmin, 0 if there is none
    sub: int  # packed sub-scales, 0 if there are none
    codes: int  # first group
    group: int  # bytes of a group


def strip_block(t: Type) -> StripBlock:
    """The layout of a type's block, from its facts."""
    head = 64 if t.minimum else 32
    packed = 0
    if t.kind == "super":
        packed = 256 if t.group == 16 else 192
    return StripBlock(
        16 * t.bytes,
        32 if t.minimum else 0,
        head if packed else 0,
        head + packed,
        GROUP_BYTES[t.bits],
    )


def codes_of(t: Type) -> Codes:
    """The type's codes as the dot product must know them."""
    return Codes(t.bits, t.center, t.signed, t.group)


def unpack(v: Words, t: Type, p: Addr) -> Callable[[int], B]:
    """code(step): the bytes of k-step 0..7 of the group at p, as they stand.

    8-bit codes are signed, others unsigned. Steps must be asked for in ascending order: a unit is
    loaded once and serves two or more of them.
    """
    unit: dict[int, B] = {}

    def at(offset: int) -> B:
        if offset not in unit:
            unit[offset] = v.ld_b(p + offset)
        return unit[offset]

    def nibble(offset: int, step: int) -> B:
        return v.bits_b(at(offset), 4 * (step & 1), 15)

    def four(step: int) -> B:
        return nibble(64 * (step // 2), step)

    def five(step: int) -> B:
        return v.or_b(four(step), v.bits_b(at(256), step, 1, 4))

    def six(step: int) -> B:
        half, k = divmod(step, 4)
        low = nibble(192 * half + 64 * (k // 2), k)
        return v.or_b(low, v.bits_b(at(192 * half + 128), 2 * k, 3, 4))

    def eight(step: int) -> B:
        return at(64 * step)

    return {4: four, 5: five, 6: six, 8: eight}[t.bits]


def unpack_scales6(v: Words, p: Addr, out: Addr) -> None:
    """6-bit fields of Q4_K, Q5_K -> a byte each.

    12 planes of 16 bytes at p -> 8 x 16 sub-scales, then 8 x 16 minima at out.
    """
    low, mid, top = v.ld_b(p), v.ld_b(p + 64), v.ld_b(p + 128)
    v.st_b(out, v.bits_b(low, 0, 63))
    v.st_b(out + 64, v.or_b(v.bits_b(top, 0, 15), v.bits_b(low, 6, 3, 4)))
    v.st_b(out + 128, v.bits_b(mid, 0, 63))
    v.st_b(out + 192, v.or_b(v.bits_b(top, 4, 15), v.bits_b(mid, 6, 3, 4)))
