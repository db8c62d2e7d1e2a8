"""Pages in numpy: what is written is read back, rounded as the cache type rounds."""

import numpy as np
import pytest

from gguf_runtime.cache import pages
from gguf_runtime.errors import RequestError


@pytest.mark.parametrize("kind", pages.KINDS)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(64, 64), (20, 40), (96, 32)])
def test_what_is_written_is_read_back(kind, key_dim, value_dim):
    if kind == "q8_0" and (key_dim % 32 or value_dim % 32):
        with pytest.raises(RequestError, match="q8_0"):
            pages.Layout(kind, key_dim, value_dim, 3)
        return
    layout = pages.Layout(kind, key_dim, value_dim, 3)
    page = np.full(layout.layer_bytes, 255, np.uint8)
    rng = np.random.default_rng(0)
    k = rng.normal(0, 1, (64, 3, key_dim)).astype(np.float32)
    v = rng.normal(0, 1, (64, 3, value_dim)).astype(np.float32)

    for slot in range(64):
        pages.write(layout, page, slot, k[slot], v[slot])
    got_k, got_v = pages.read(layout, page)

    assert np.array_equal(got_k, pages.rounded(kind, k))
    assert np.array_equal(got_v, pages.rounded(kind, v))


def test_rounding_is_that_of_the_type():
    x = np.random.default_rng(1).normal(0, 1, (5, 64)).astype(np.float32)
    assert np.array_equal(pages.rounded("f32", x), x)
    assert np.array_equal(pages.rounded("f16", x), x.astype(np.float16).astype(np.float32))
    step = np.abs(x.reshape(5, 2, 32)).max(-1).repeat(32, -1) / 127
    # Half a step, and what d loses as a half-precision number.
    assert np.all(np.abs(pages.rounded("q8_0", x) - x) <= step * (0.5 + 127 * 2.0**-11))


def test_zeros_and_tiny_groups_stay_finite_in_q8_0():
    x = np.zeros((1, 32), np.float32)
    assert np.array_equal(pages.rounded("q8_0", x), x)
    x[0, 3] = 1e-12  # d rounds to zero
    assert np.array_equal(pages.rounded("q8_0", x), np.zeros_like(x))


def test_q8_0_names_the_type_to_take_instead():
    with pytest.raises(RequestError) as caught:
        pages.Layout("q8_0", 40, 40, 1)
    assert "--cache-type f16" in str(caught.value)
    assert "40" in str(caught.value)
