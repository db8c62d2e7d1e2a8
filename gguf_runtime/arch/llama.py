"""Llama (1 to 3), Mistral and SmolLM2: RMS pre-norm, grouped heads, SwiGLU.

Source: arXiv:2302.13971; Llama 3 scales its rope by a tensor, `rope_freqs`.
Converters re-order q and k so that pairs are neighbours: rope kind norm, nothing to permute here.
Checked: tests/golden/test_archs_exact.py, logits of transformers in float32.
"""

from __future__ import annotations

from gguf_runtime.arch.hyper import Hyper, read_hyper
from gguf_runtime.arch.rope_keys import make_rope
from gguf_runtime.graph.builder import Builder
from gguf_runtime.graph.nodes import Node
from gguf_runtime.graph.weights import Spec, Weights, matrix, vector

read = read_hyper


def tensors(h: Hyper) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """Parameters of the model and of each layer."""
    model = {
        "token_embd": matrix(h.n_embd, h.n_vocab),
        "output_norm": vector(h.n_embd),
        "output": matrix(h.n_embd, h.n_vocab, tied="token_embd"),
        "rope_freqs": vector(h.n_rot // 2, optional=True),
    }
    layer = {
        "attn_norm": vector(h.n_embd),
        "attn_q": matrix(h.n_embd, h.q_width, bias=True, fused="attn_qkv"),
        "attn_k": matrix(h.n_embd, h.kv_width, bias=True, fused="attn_qkv"),
        "attn_v": matrix(h.n_embd, h.kv_width, bias=True, fused="attn_qkv"),
        "attn_output": matrix(h.q_width, h.n_embd, bias=True),
        "ffn_norm": vector(h.n_embd),
        "ffn_gate": matrix(h.n_embd, h.n_ff, bias=True),
        "ffn_up": matrix(h.n_embd, h.n_ff, bias=True),
        "ffn_down": matrix(h.n_ff, h.n_embd, bias=True),
    }
    return model, layer


def build(g: Builder, h: Hyper, w: Weights) -> Node:
    """T ids -> logits, n_vocab for each token that wants them."""
    divisors = w.get("rope_freqs")
    rope = make_rope(
        "norm",
        head_dim=h.head_dim,
        n_rot=h.n_rot,
        base=h.rope_freq_base,
        scaling=h.scaling,
        divisors=None if divisors is None else w.values(divisors.weight),
    )
    x = g.embed(w.token_embd)  # (T, n_embd)
    for i, l in enumerate(w.layers):
        n = g.rms_norm(x, l.attn_norm, h.norm_eps)
        q = g.rope(g.linear(n, l.attn_q), rope)  # (T, n_head * head_dim)
        k = g.rope(g.linear(n, l.attn_k), rope)  # (T, n_head_kv * head_dim)
        v = g.linear(n, l.attn_v)
        a = g.attention(
            q, k, v, layer=i, head_dim=h.head_dim, scale=h.attention_scale, window=h.window
        )
        x = g.add(x, g.linear(a, l.attn_output))
        n = g.rms_norm(x, l.ffn_norm, h.norm_eps)
        x = g.add(x, g.gated(n, l.ffn_gate, l.ffn_up, l.ffn_down, act="silu"))
    return g.head(g.rms_norm(x, w.output_norm, h.norm_eps), w.output)
