"""Qwen2 and Qwen2.5: llama's layer with biases on q, k and v, and rope on half-split pairs.

Source: Qwen2 technical report, arXiv:2407.10671.
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
        "output": matrix(h.n_embd, h.n_vocab, bias=True, tied="token_embd"),
    }
    layer = {
        "attn_norm": vector(h.n_embd),
        "attn_q": matrix(h.n_embd, h.q_width, bias=True, fused="attn_qkv"),
        "attn_k": matrix(h.n_embd, h.kv_width, bias=True, fused="attn_qkv"),
        "attn_v": matrix(h.n_embd, h.kv_width, bias=True, fused="attn_qkv"),
        "attn_output": matrix(h.q_width, h.n_embd),
        "ffn_norm": vector(h.n_embd),
        "ffn_gate": matrix(h.n_embd, h.n_ff),
        "ffn_up": matrix(h.n_embd, h.n_ff),
        "ffn_down": matrix(h.n_ff, h.n_embd),
    }
    return model, layer


def build(g: Builder, h: Hyper, w: Weights) -> Node:
    """T ids -> logits, n_vocab for each token that wants them."""
    rope = make_rope(
        "neox", head_dim=h.head_dim, n_rot=h.n_rot, base=h.rope_freq_base, scaling=h.scaling
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
