"""All words of the vocabulary in one class.

A word is a method that emits LLVM code for the P registers of each value. Subclasses in `isa/`
state the number of registers and replace only what their instructions do better or differently;
results are the same bits everywhere.
"""

from __future__ import annotations

from quant.simd.dots import DotWords
from quant.simd.floats import FloatWords
from quant.simd.ints import IntWords
from quant.simd.memory import MemoryWords
from quant.simd.scalars import ScalarWords


class Words(DotWords, MemoryWords, FloatWords, IntWords, ScalarWords):
    """The vocabulary on one builder; what a kernel calls `v`."""
