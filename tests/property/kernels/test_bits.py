"""Every kernel equals its `bits` on every instruction set, and `bits` is near float64."""

import numpy as np
import pytest

from gguf_runtime.kernels import act, attention, norm, rope
from gguf_runtime.kernels.attention_checks import AttentionCase
from gguf_runtime.kernels.checks import spread
from quant import cpu

from .conftest import specs_of

CASES = [(isa, spec, check) for isa in cpu.exact()[::-1] for spec, check in specs_of(isa)]


@pytest.mark.parametrize(
    ("isa", "spec", "check"), CASES, ids=[f"{isa}-{s.factory}-{s.params}" for isa, s, _ in CASES]
)
def test_kernel_equals_its_bits_between_poisoned_borders(isa, spec, check, kernels):
    assert check(kernels(isa)[spec], *spec.params) == ""


@pytest.mark.parametrize("n", [1, 31, 576, 5000])
def test_norm_is_near_float64(n):
    rng = np.random.default_rng(n)
    x, y = spread(rng, 2, 4, n)
    w, y_w = rng.normal(1, 0.2, (2, n)).astype(np.float32)
    wide = [a.astype(np.float64) for a in (x, y, w, y_w)]

    want = norm.reference(wide[0], wide[2], 1e-5)
    assert np.all(np.abs(norm.bits(x, w, 1e-5) - want) <= norm.RTOL * np.abs(want))

    sum_ = norm.residual(wide[0], wide[1], wide[3], 1e-5)
    branch = np.abs(sum_ - wide[0])
    assert np.all(
        np.abs(norm.residual_bits(x, y, y_w, 1e-5) - sum_) <= norm.RTOL * (np.abs(wide[0]) + branch)
    )


@pytest.mark.parametrize("function", act.FUNCTIONS)
def test_gated_activation_is_near_float64(function):
    rng = np.random.default_rng(0)
    gate, up = spread(rng, 2, 4000)
    want = act.reference(function, gate.astype(np.float64), up.astype(np.float64))
    scale = np.abs(gate.astype(np.float64) * up) if function == "gelu" else np.abs(want)
    assert np.all(np.abs(act.bits(function, gate, up) - want) <= act.RTOL * scale)


@pytest.mark.parametrize("kind", ["norm", "neox"])
@pytest.mark.parametrize(("dim", "n_rot"), [(64, 64), (20, 12), (128, 32)])
def test_rope_is_near_float64(kind, dim, n_rot):
    rng = np.random.default_rng(dim)
    x, w = spread(rng, 3, 2, dim), rng.normal(1, 0.2, dim).astype(np.float32)
    angle = rng.normal(0, 3, (3, n_rot // 2))
    cos, sin = np.cos(angle), np.sin(angle)

    got = rope.bits(kind, x, cos.astype(np.float32), sin.astype(np.float32), w, 1e-6, 0.3)
    want = rope.reference(kind, x.astype(np.float64), cos, sin, w.astype(np.float64), 1e-6, 0.3)

    size = np.linalg.norm(want, axis=-1, keepdims=True)
    assert np.all(np.abs(got - want) <= rope.RTOL * size)


def test_rope_pairs_differ_by_kind_as_llama_and_neox_do():
    x = np.arange(8, dtype=np.float64).reshape(1, 1, 8)
    quarter = np.zeros((1, 4)), np.ones((1, 4))  # cos, sin of a right angle
    assert rope.reference("norm", x, *quarter).ravel().tolist() == [-1, 0, -3, 2, -5, 4, -7, 6]
    assert rope.reference("neox", x, *quarter).ravel().tolist() == [-4, -5, -6, -7, 0, 1, 2, 3]


@pytest.mark.parametrize("window", [0, 5, 600])
def test_attention_is_near_float64(window):
    pos = np.array([0, 1, 63, 64, 511, 512, 700], np.int32)
    case = AttentionCase("f16", 4, 2, 40, pos, window)
    wide = [a.astype(np.float64) for a in (case.q, case.k, case.x)]

    want = attention.reference(*wide, pos, window)

    assert np.max(np.abs(case.bits() - want)) <= attention.RTOL * np.abs(case.x).max()
