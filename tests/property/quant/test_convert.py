"""The public conversions: round trips, and refusals that say what was expected."""

import numpy as np
import pytest

import quant
from quant import TYPES, QuantError, dequantize, quantize, types

every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)


@every_type
def test_quantize_errs_by_less_than_a_few_steps(t):
    x = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)

    y = dequantize(quantize(x, t.name), t.id)

    # The scale of the group allows 2^bits values between the extremes, its own rounding one more.
    step = 8.0 / 2**t.bits if t.kind != "float" else 2.0**-6
    assert np.abs(y - x).max() <= 2 * step


@every_type
def test_quantize_of_decoded_values_keeps_them_nearly(t):
    x = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    once = dequantize(quantize(x, t), t)

    twice = dequantize(quantize(once, t), t)

    assert np.abs(twice - once).max() <= 4.0 / 2**t.bits


@every_type
def test_a_table_row_has_the_facts_of_its_module(t):
    assert (t.values, t.bytes) == (t.format.VALUES, t.format.BYTES)
    assert types.by_id(t.id) == t
    assert types.get(t.name.lower()) is types.get(t.id) is types.get(t) is t
    assert t.row_bytes(512) == 512 // t.values * t.bytes


def test_the_table_agrees_with_the_gguf_package():
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")

    for t in TYPES.values():
        theirs = gguf.GGMLQuantizationType(t.id)
        assert theirs.name == t.name
        assert gguf.GGML_QUANT_SIZES[theirs] == (t.values, t.bytes)


def test_an_unknown_type_lists_the_known_ones_nearest_first():
    with pytest.raises(QuantError, match=r"'Q4_KK' is not known\n.*one of Q4_K, BF16, F16"):
        types.get("Q4_KK")
    with pytest.raises(QuantError, match="type 99 is not known"):
        dequantize(np.zeros((1, 34), np.uint8), 99)
    assert types.by_id(99) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dequantize(np.zeros((2, 35), np.uint8), "Q8_0"), "multiple of 34, got 35"),
        (lambda: dequantize(np.zeros(34, np.uint8), "Q8_0"), r"uint8 \(rows.*\(34,\)"),
        (lambda: dequantize(np.zeros((1, 34), np.int8), "Q8_0"), "got int8"),
        (lambda: quantize(np.zeros((1, 33), np.float32), "Q8_0"), "multiple of 32, got 33"),
        (lambda: quantize(np.zeros((1, 32)), "Q8_0"), "got float64"),  # type: ignore[arg-type]
        (lambda: quantize(np.full((1, 32), np.nan, np.float32), "Q8_0"), "row 0 .*\n.*NaN"),
        (
            lambda: quantize(np.zeros((1, 256), np.float32), "Q4_K", np.zeros(5, np.float32)),
            r"256 values >= 0, got shape \(5,\)",
        ),
    ],
)
def test_a_refusal_says_what_was_expected_and_what_came(call, message):
    with pytest.raises(QuantError, match=message) as e:
        call()
    assert isinstance(e.value, ValueError)


@every_type
def test_no_rows_are_no_rows(t):
    assert quantize(np.zeros((0, 256), np.float32), t).shape == (0, t.row_bytes(256))
    assert dequantize(np.zeros((0, t.bytes), np.uint8), t).shape == (0, t.values)


def test_every_public_name_exists():
    assert sorted(quant.__all__) == sorted(set(quant.__all__))
    assert all(hasattr(quant, name) for name in quant.__all__)
