"""Layouts that kernels and their callers share; imports nothing, so running kernels stays light.

Activations of one column and 256 values of k, one block:

    a8    q i8[256] | dx f32[8] | xs f32[8] | sums of q                            416 bytes
    a16   h i8[256] | l i8[256] | dx f32[8] | xs f32[8] | sums of h | sums of l    768 bytes
          q = 128 h + l
    sums  per 16 values [16] | per 32 values [8], 4 bytes each: int32, on AVX2 two int16
          (k % 4 < 2, the others)
"""

from __future__ import annotations

from dataclasses import dataclass

SUM16, SUM32, SUM_BYTES = 0, 64, 96


@dataclass(frozen=True, slots=True)
class Act:
    """Layout of one activation block: byte offsets of its planes and tables."""

    name: str
    limit: int  # largest |q|
    planes: int  # bytes of a code
    size: int  # bytes of a block

    @property
    def dx(self) -> int:
        """Offset of the scales."""
        return 256 * self.planes

    @property
    def xs(self) -> int:
        """Offset of the scaled sums."""
        return self.dx + 32

    def sums(self, plane: int) -> int:
        """Offset of the sums of a plane."""
        return self.xs + 32 + SUM_BYTES * plane


ACTS = {"a8": Act("a8", 127, 1, 416), "a16": Act("a16", 16319, 2, 768)}


@dataclass(frozen=True, slots=True)
class Codes:
    """What the dot product must know of a type's codes, as they stand in bytes."""

    bits: int
    center: int  # subtracted from each code
    signed: bool  # bytes are int8
    group: int  # values that share a sub-scale (16 or 32)
