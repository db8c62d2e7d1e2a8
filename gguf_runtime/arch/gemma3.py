"""Gemma 3 (text): norms before and after each branch, a window in five of six layers, GeGLU.

Source: Gemma 3 technical report, arXiv:2503.19786.
Norm weights are stored with their 1 added. Window layers have a rope base of their own and are never
scaled: the scaling keys are about the global layers.
Checked: tests/golden/test_archs_exact.py, logits of transformers in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gguf_runtime.arch.hyper import MIN_FREQ_BASE, Hyper, read_hyper
from gguf_runtime.arch.rope_keys import make_rope
from gguf_runtime.errors import ModelError
from gguf_runtime.graph.builder import Builder
from gguf_runtime.graph.nodes import Node
from gguf_runtime.graph.weights import Spec, Weights, matrix, vector

if TYPE_CHECKING:
    from gguf_runtime.gguf import Keys

PATTERN = 6
N_LAYER_27B = 62  # the 27B model alone scales scores by the width per head


@dataclass(frozen=True, slots=True)
class Gemma3:
    """The common sizes, the layers that see a window only, and their rope base."""

    common: Hyper
    windowed: tuple[bool, ...]
    rope_freq_base_swa: float
    scale: float


def read(keys: Keys, n_vocab: int | None) -> Gemma3:
    """Read and check the keys."""
    h = read_hyper(keys, n_vocab)
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if keys.arch_float(cap, 0.0, low=0.0, high=1e6):
            raise ModelError(
                f"gemma3 with soft caps is not supported ({keys.key(cap)})", where=keys.path
            )
    scale = h.attention_scale
    if h.n_layer == N_LAYER_27B:
        scale = (h.n_embd / h.n_head) ** -0.5
    return Gemma3(
        h,
        _windowed(keys, h.n_layer) if h.window else (False,) * h.n_layer,
        keys.arch_float("rope.freq_base_swa", 10000.0, low=MIN_FREQ_BASE, high=1e12),
        scale,
    )


def _windowed(keys: Keys, n_layer: int) -> tuple[bool, ...]:
    key = "attention.sliding_window_pattern"
    if isinstance(keys.metadata.get(keys.key(key), PATTERN), int):  # every n-th layer is global
        n = keys.arch_int(key, PATTERN, low=1)
        return tuple(i % n < n - 1 for i in range(n_layer))
    return tuple(p != 0 for p in keys.arch_ints(key, n_layer, high=1))


def tensors(hyper: Gemma3) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """Parameters of the model and of each layer."""
    h = hyper.common
    model = {
        "token_embd": matrix(h.n_embd, h.n_vocab),
        "output_norm": vector(h.n_embd),
        "output": matrix(h.n_embd, h.n_vocab, tied="token_embd"),
    }
    layer = {
        "attn_norm": vector(h.n_embd),
        "attn_q": matrix(h.n_embd, h.q_width, fused="attn_qkv"),
        "attn_k": matrix(h.n_embd, h.kv_width, fused="attn_qkv"),
        "attn_v": matrix(h.n_embd, h.kv_width, fused="attn_qkv"),
        "attn_q_norm": vector(h.head_dim),
        "attn_k_norm": vector(h.head_dim),
        "attn_output": matrix(h.q_width, h.n_embd),
        "post_attention_norm": vector(h.n_embd),
        "ffn_norm": vector(h.n_embd),
        "ffn_gate": matrix(h.n_embd, h.n_ff),
        "ffn_up": matrix(h.n_embd, h.n_ff),
        "ffn_down": matrix(h.n_ff, h.n_embd),
        "post_ffw_norm": vector(h.n_embd),
    }
    return model, layer


def build(g: Builder, hyper: Gemma3, w: Weights) -> Node:
    """T ids -> logits, n_vocab for each token that wants them."""
    h, eps = hyper.common, hyper.common.norm_eps
    everywhere = make_rope(
        "neox", head_dim=h.head_dim, n_rot=h.n_rot, base=h.rope_freq_base, scaling=h.scaling
    )
    nearby = make_rope("neox", head_dim=h.head_dim, n_rot=h.n_rot, base=hyper.rope_freq_base_swa)
    x = g.scale(g.embed(w.token_embd), h.n_embd**0.5)  # (T, n_embd)
    for i, l in enumerate(w.layers):
        rope, window = (nearby, h.window) if hyper.windowed[i] else (everywhere, 0)
        n = g.rms_norm(x, l.attn_norm, eps)
        q = g.rope(g.rms_norm(g.linear(n, l.attn_q), l.attn_q_norm, eps), rope)
        k = g.rope(g.rms_norm(g.linear(n, l.attn_k), l.attn_k_norm, eps), rope)
        v = g.linear(n, l.attn_v)
        a = g.attention(q, k, v, layer=i, head_dim=h.head_dim, scale=hyper.scale, window=window)
        x = g.add(x, g.rms_norm(g.linear(a, l.attn_output), l.post_attention_norm, eps))
        n = g.rms_norm(x, l.ffn_norm, eps)
        f = g.gated(n, l.ffn_gate, l.ffn_up, l.ffn_down, act="gelu")
        x = g.add(x, g.rms_norm(f, l.post_ffw_norm, eps))
    return g.head(g.rms_norm(x, w.output_norm, eps), w.output)
