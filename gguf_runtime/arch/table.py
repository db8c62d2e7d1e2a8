"""Architecture names, the modules that write them down, and the way from a file to a graph."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from gguf_runtime.arch.hyper import Hyper
from gguf_runtime.errors import ModelError
from gguf_runtime.graph.builder import Builder
from gguf_runtime.graph.nodes import Graph, Node
from gguf_runtime.graph.weights import Spec, Weights, bind

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile, Keys

# general.architecture -> module
ARCHITECTURES: dict[str, str] = {
    "gemma3": "gguf_runtime.arch.gemma3",
    "llama": "gguf_runtime.arch.llama",
    "qwen2": "gguf_runtime.arch.qwen2",
    "qwen3": "gguf_runtime.arch.qwen3",
}


class Architecture(Protocol):
    """What a module of the table has; its Hyper is its own business."""

    def read(self, keys: Keys, n_vocab: int | None) -> Any:
        """The file's keys as a frozen Hyper."""

    def tensors(self, h: Any) -> tuple[dict[str, Spec], dict[str, Spec]]:
        """What the model and each layer must hold."""

    def build(self, g: Builder, h: Any, w: Weights) -> Node:
        """Record the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """An architecture with the sizes and weights of one file."""

    name: str
    hyper: Hyper
    weights: Weights
    graph: Graph


def load(file: GGUFFile) -> Model:
    """The model in an open file; reads no weights but the small ones that the graph depends on.

    ModelError when the architecture is not supported, a key is out of range or tensors do not fit.
    """
    from gguf_runtime.gguf import Keys

    check_role(file)
    keys = Keys(file)
    module = _module(keys)
    embedding = file.tensors.get("token_embd.weight")
    n_vocab = embedding.shape[1] if embedding is not None and len(embedding.shape) == 2 else None
    own = module.read(keys, n_vocab)
    hyper = own if isinstance(own, Hyper) else own.common
    model, layer = module.tensors(own)
    weights = bind(file, model, [layer] * hyper.n_layer)
    builder = Builder()
    module.build(builder, own, weights)
    return Model(keys.arch, hyper, weights, builder.graph())


def check_role(file: GGUFFile) -> None:
    """ModelError for a sound GGUF file that holds something else than a model."""
    from gguf_runtime.gguf.foreign import not_a_model

    other = not_a_model(file.metadata, len(file.tensors))
    if other is not None:
        raise ModelError(other[0], where=file.path, hint=other[1])


def _module(keys: Keys) -> Architecture:
    path = ARCHITECTURES.get(keys.arch)
    if path is None:
        names = sorted(ARCHITECTURES)
        close = difflib.get_close_matches(keys.arch, names, n=1)
        names = close + [name for name in names if name not in close]
        raise ModelError(
            f"architecture '{keys.arch}' not supported (supported: {', '.join(names)})",
            where=keys.path,
        )
    module: Architecture = import_module(path)
    return module
