"""The compiled scan of string arrays finds what the Python scan finds."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_runtime.gguf.strings import python_scan, scan_strings
from gguf_runtime.kernels.strings import load_scan


def strings(lengths: list[int], tail: bytes = b"") -> np.ndarray:
    data = b"".join(n.to_bytes(8, "little") + b"x" * n for n in lengths)
    return np.frombuffer(b"head" + data + tail, np.uint8)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_scan_equals_python_scan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = strings(rng.integers(0, 40, 500).tolist())

    found = scan_strings(data, 4, 500, load_scan())

    assert np.array_equal(found, scan_strings(data, 4, 500))
    assert found[-1] == len(data)


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30])
def test_compiled_scan_stops_before_a_string_that_is_cut_off(cut: int) -> None:
    data = strings([5, 0, 17, 30])[:-cut]

    found = scan_strings(data, 4, 4, load_scan())

    assert np.array_equal(found, scan_strings(data, 4, 4, python_scan))
    assert len(found) - 1 == 3


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**62])
def test_compiled_scan_refuses_lengths_that_wrap(length: int) -> None:
    data = strings([3], tail=length.to_bytes(8, "little") + b"abc")

    assert len(scan_strings(data, 4, 2, load_scan())) - 1 == 1
