"""Quantized linear algebra on a CPU: the ground floor; knows nothing of models.

`dequantize` and `quantize` turn the blocks of a GGUF file into float32 and back; `pack` puts a
weight matrix into the order that kernels read, `matmul` multiplies by it; `TYPES` is the table of
the types they know. Everything else is a module of its own.
"""

from __future__ import annotations

from quant.convert import dequantize, quantize
from quant.errors import QuantError
from quant.linear import matmul
from quant.packing import Pack, pack
from quant.types import TYPES, Type

__all__ = ["TYPES", "Pack", "QuantError", "Type", "dequantize", "matmul", "pack", "quantize"]
