"""Facts of a loaded model, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile
    from gguf_runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Info:
    """What `Model.info` says.

    Attributes:
        path: the file; of several shards the first.
        type: the weight type that most values have.
        n_ctx: positions that the model was trained with; `Model.context` is what it was loaded with.
        n_head, n_head_kv, n_ff: of the first layer.
        eos_ids: tokens that end a turn.
        rope_freq_base, rope_scaling, rope_factor: as they take effect.
        fingerprint: digest of the file's header and the ends of its tensors.
    """

    path: Path
    name: str | None
    architecture: str
    type: str
    n_params: int
    bits_per_weight: float
    n_vocab: int
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_ctx: int
    window: int | None
    rope_freq_base: float
    rope_scaling: str
    rope_factor: float
    bos_id: int | None
    eos_ids: tuple[int, ...]
    has_template: bool
    fingerprint: str


def read_info(file: GGUFFile, tokenizer: Tokenizer, path: Path) -> Info:
    """Gather the facts of an open file."""
    m = file.manifest()
    values: dict[str, int] = {}
    for t in file.tensors.values():
        if t.qtype is not None and len(t.shape) > 1:
            n = 1
            for d in t.shape:
                n *= d
            values[t.qtype.name] = values.get(t.qtype.name, 0) + n
    kind = max(values, key=lambda k: values[k]) if values else "unknown"

    def first(x: tuple[int, ...]) -> int:
        return x[0] if x else 0

    return Info(
        path=path,
        name=m.name,
        architecture=m.architecture,
        type=kind,
        n_params=m.n_params,
        bits_per_weight=m.bits_per_weight,
        n_vocab=m.n_vocab,
        n_layer=m.n_layer,
        n_embd=m.n_embd,
        n_head=first(m.n_head),
        n_head_kv=first(m.n_head_kv),
        head_dim=m.head_dim,
        n_ff=first(m.n_ff),
        n_ctx=m.n_ctx,
        window=m.window,
        rope_freq_base=m.rope.base,
        rope_scaling=m.rope.scaling,
        rope_factor=m.rope.factor,
        bos_id=tokenizer.bos_id,
        eos_ids=tokenizer.eos_ids,
        has_template=bool(file.metadata.get("tokenizer.chat_template")),
        fingerprint=file.fingerprint(),
    )
