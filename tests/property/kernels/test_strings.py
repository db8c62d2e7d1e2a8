"""The compiled readers of string arrays find what Python finds."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_runtime.engine.vocabulary import SPECS, readers
from gguf_runtime.gguf import lookup, open_file
from gguf_runtime.gguf.strings import StringArray, python_scan, scan_strings
from gguf_runtime.kernels.strings import LIMIT
from gguf_runtime.text.tokenizer import Tokenizer
from quant import jit


@pytest.fixture(scope="module")
def compiled():
    return readers(jit.load(SPECS))


def strings(lengths: list[int], tail: bytes = b"") -> np.ndarray:
    data = b"".join(n.to_bytes(8, "little") + b"x" * n for n in lengths)
    return np.frombuffer(b"head" + data + tail, np.uint8)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_scan_equals_python_scan(compiled, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = strings(rng.integers(0, 40, 500).tolist())

    found = scan_strings(data, 4, 500, compiled.scan)

    assert np.array_equal(found, scan_strings(data, 4, 500))
    assert found[-1] == len(data)


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30])
def test_compiled_scan_stops_before_a_string_that_is_cut_off(compiled, cut: int) -> None:
    data = strings([5, 0, 17, 30])[:-cut]

    found = scan_strings(data, 4, 4, compiled.scan)

    assert np.array_equal(found, scan_strings(data, 4, 4, python_scan))
    assert len(found) - 1 == 3


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**62])
def test_compiled_scan_refuses_lengths_that_wrap(compiled, length: int) -> None:
    data = strings([3], tail=length.to_bytes(8, "little") + b"abc")

    assert len(scan_strings(data, 4, 2, compiled.scan)) - 1 == 1


def array(texts: list[bytes], tables=None) -> StringArray:
    data = b"head" + b"".join(len(t).to_bytes(8, "little") + t for t in texts)
    raw = np.frombuffer(data, np.uint8)
    return StringArray(raw, scan_strings(raw, 4, len(texts)), tables)


def random_texts(n: int, seed: int = 0) -> list[bytes]:
    """With doubles, empty ones, ones that begin alike, and zero bytes."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, rng.integers(0, 20)).astype(np.uint8).tobytes() for _ in range(n)]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 5000])
def test_a_table_answers_as_a_dictionary_does(compiled, n, some, last, monkeypatch) -> None:
    texts = random_texts(n)
    include = (np.arange(n) % 3 != 0).astype(np.uint8) if some else None
    numbered = [(t, i) for i, t in enumerate(texts) if include is None or include[i]]
    expected = dict(numbered if last else reversed(numbered))
    asked = [*texts, b"none", b"", b"\0" * 8, *random_texts(3000, 1)]
    monkeypatch.setattr(lookup, "OFTEN", 10**9)

    found = array(texts, compiled.tables).numbers(include, last)

    assert [found.get(t) for t in asked] == [expected.get(t) for t in asked]


def test_who_asks_often_gets_a_dictionary_with_the_same_answers(compiled, monkeypatch) -> None:
    texts = random_texts(300)
    monkeypatch.setattr(lookup, "OFTEN", 100)
    found = array(texts, compiled.tables).numbers()

    answers = [found.get(t) for t in texts]

    assert answers == [array(texts).numbers().get(t) for t in texts]


def test_reading_strings_often_gives_the_same_strings(monkeypatch) -> None:
    texts = random_texts(300)
    monkeypatch.setattr("gguf_runtime.gguf.strings.OFTEN", 100)
    strings = array(texts)

    assert [strings[i] for i in range(300)] == texts
    assert [strings[i - 300] for i in range(300)] == texts
    with pytest.raises(IndexError):
        strings[300]


def test_texts_that_fall_into_one_place_are_left_to_a_dictionary(compiled) -> None:
    texts = colliding(LIMIT + 50)

    assert compiled.tables(array(texts).data, array(texts).offsets, None, True) is None
    assert array(texts, compiled.tables).numbers().get(texts[-1]) == len(texts) - 1


def colliding(n: int) -> list[bytes]:
    """Texts of 8 bytes whose hashes agree in all the bits that a small table looks at.

    The hash is (h ^ h >> 32) * F, shifted by 17, of h = (8 ^ word) * F; F is odd, so both steps can
    be undone: words are made from the hashes that are wanted.
    """
    mask, factor = 2**64 - 1, -7046029254386353131 % 2**64
    inverse = pow(factor, -1, 2**64)
    out = []
    for k in range(n):
        h = (k << 40 | 12345 << 17) * inverse & mask  # before the last multiplication
        h ^= h >> 32
        word = (h * inverse & mask) ^ 8
        out.append(word.to_bytes(8, "little"))
    return out


@pytest.mark.model("smollm2")
@pytest.mark.model("gemma-3-270m")
@pytest.mark.parametrize("name", ["smollm2", "gemma-3-270m"])
def test_a_text_has_the_same_tokens_with_tables(compiled, name, model_path) -> None:
    text = (
        "The quick  brown fox, naïve café — 東京 🦊\n\n\tdef f(x): return x**2  # 1,234.5"
        " <|im_end|><end_of_turn> \u2581\u2581a\u2581b \x00\x7f ﬁn ٣٤"
    )
    plain = Tokenizer.from_gguf(open_file(model_path(name)))
    tabled = Tokenizer.from_gguf(open_file(model_path(name), compiled))

    for part in (text, text[::-1], text * 40):
        for parse in (False, True):
            ids = tabled.encode(part, add_special=True, parse_special=parse)
            assert ids == plain.encode(part, add_special=True, parse_special=parse)
    assert tabled.decode(ids) == plain.decode(ids)
    assert tabled.eos_ids == plain.eos_ids
    assert tabled.control_texts == plain.control_texts
