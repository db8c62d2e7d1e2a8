"""What is not a matmul, compiled here for Arm and run on an emulated processor: the bits of numpy."""

import platform

import pytest

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(
        platform.machine() in ("arm64", "aarch64"), reason="this is Arm: the other tests run there"
    ),
]

FEW = ("norm.rms_norm:post:a8", "rope.rope_store:norm:f16")
MANY = (
    "act.gate_act:silu:a8",
    "act.gate_act:gelu:f32",
    "attention.attention:f16",
    "attention.attention:q8_0",
    "attention.merge",
    "norm.rms_norm:plain:a16",
    "rope.rope_store:neox:q8_0",
    "sample.scan",
    "sample.pick",
)
# The generic kernels must do without the dot product, which this processor lacks.
PROCESSORS = {"neondot": "apple-m1", "generic": "cortex-a72"}


def check(isa, names, arm, cross):
    kernels = [f"gguf_runtime.kernels.{name}" for name in names]
    objects = cross(isa, "aarch64", *kernels)

    out = arm(
        PROCESSORS[isa],
        "tests/machine/emulated_checks.py",
        isa,
        *(f"{text}={path}" for text, path in objects.items()),
    )

    assert dict(line.split(maxsplit=1) for line in out.splitlines()) == dict.fromkeys(kernels, "ok")


@pytest.mark.parametrize("isa", PROCESSORS)
def test_norm_and_rope_give_their_bits_on_arm(isa, arm, cross):
    check(isa, FEW, arm, cross)


@pytest.mark.slow
@pytest.mark.parametrize("isa", PROCESSORS)
def test_attention_activations_and_sampling_give_their_bits_on_arm(isa, arm, cross):
    check(isa, MANY, arm, cross)
