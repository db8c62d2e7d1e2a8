"""llama.cpp's samplers beyond the chain of the kernels: their parameters, the steps, and the whole chain."""

from gguf_runtime.samplers.parameters import BREAKERS, NAMES, More

__all__ = ["BREAKERS", "NAMES", "More"]
