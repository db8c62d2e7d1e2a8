"""Quantized linear algebra on a CPU: the ground floor; knows nothing of models.

`dequantize` and `quantize` turn the blocks of a GGUF file into float32 and back; `pack` puts a
weight matrix into the order that kernels read, `matmul` multiplies by it; `TYPES` is the table of
the types they know. Everything else is a module of its own.

Names are imported on first use: who only asks `quant.cpu` loads no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.errors import QuantError

if TYPE_CHECKING:
    from quant.convert import dequantize, quantize
    from quant.linear import matmul
    from quant.packing import Pack, pack
    from quant.types import TYPES, Type
else:
    _HOMES = {
        "convert": ("dequantize", "quantize"),
        "linear": ("matmul",),
        "packing": ("Pack", "pack"),
        "types": ("TYPES", "Type"),
    }

    def __getattr__(name):
        """A public name, from the module where it stands (PEP 562)."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = getattr(import_module(f"quant.{home}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["TYPES", "Pack", "QuantError", "Type", "dequantize", "matmul", "pack", "quantize"]
