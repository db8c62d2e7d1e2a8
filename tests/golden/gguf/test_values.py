"""Metadata: every kind of value, and every way in which a value can be wrong (rows G5 to G11, G21)."""

from __future__ import annotations

import struct
import time

import gguf
import numpy as np
import pytest

from gguf_runtime.gguf import StringArray, open_file, scan_strings
from gguf_runtime.gguf.strings import Compiled, python_scan
from tests.gguf_bytes import (
    ARRAY,
    BOOL,
    CODES,
    F32,
    I32,
    STRING,
    U8,
    U32,
    array,
    build,
    header,
    pair,
    string,
    tiny,
)

PROMISED_S = 0.5  # a header with a vocabulary of 262,144; five times that in tests
EXTREMES = {
    "B": (0, 255),
    "b": (-128, 127),
    "H": (0, 65535),
    "h": (-32768, 32767),
    "I": (0, 2**32 - 1),
    "i": (-(2**31), 2**31 - 1),
    "f": (-1.5, 3.4028234663852886e38),
    "Q": (0, 2**64 - 1),
    "q": (-(2**63), 2**63 - 1),
    "d": (-0.1, 1.7976931348623157e308),
}


@pytest.mark.parametrize("kind", CODES)
def test_numbers_keep_their_extremes_alone_and_in_arrays(files, kind):
    low, high = EXTREMES[CODES[kind]]
    pairs = [
        pair("low", kind, low),
        pair("high", kind, high),
        pair("both", ARRAY, array(kind, [low, high])),
    ]

    metadata = files.open(build(pairs)).metadata

    assert (metadata["low"], metadata["high"]) == (low, high)
    assert metadata["both"].tolist() == [low, high]
    assert metadata["both"].flags.aligned
    assert not metadata["both"].flags.writeable


def test_values_equal_those_of_the_gguf_package(files, tmp_path):
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 7)
    writer.add_int64("a.i64", -5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "grüß\n")
    writer.add_array("a.texts", ["x", "", "日本"])
    writer.add_array("a.floats", [0.5, 2.0])
    writer.add_array("a.flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    metadata = open_file(path).metadata

    assert metadata["a.u8"] == 7
    assert metadata["a.i64"] == -5
    assert metadata["a.f64"] == 0.1
    assert metadata["a.bool"] is True
    assert metadata["a.text"] == "grüß\n"
    assert metadata["a.texts"].tolist() == [b"x", b"", "日本".encode()]
    assert metadata["a.floats"].tolist() == [0.5, 2.0]
    assert metadata["a.flags"].tolist() == [True, False]
    assert metadata.kind("a.texts") == "array[string]"


def test_string_arrays_are_lazy_sequences(files):
    words = [b"a", b"", "ü".encode(), b"\xff\xfe", b"x" * 300]
    texts = files.open(build([pair("k", ARRAY, array(STRING, words))])).metadata["k"]

    assert isinstance(texts, StringArray)
    assert len(texts) == 5
    assert texts[3] == b"\xff\xfe"
    assert texts[-1] == b"x" * 300
    assert texts[1:3] == words[1:3]
    assert list(texts) == words
    assert texts.lengths().tolist() == [1, 0, 2, 2, 300]
    with pytest.raises(IndexError):
        texts[5]


def test_arrays_of_arrays_are_read_without_losing_the_place(files):
    inner = array(ARRAY, [array(STRING, ["a", "b"]), array(U8, [])])
    pairs = [pair("deep", ARRAY, array(ARRAY, [inner, array(I32, [-1])])), pair("after", U32, 9)]

    metadata = files.open(build(pairs)).metadata

    (texts, empty), numbers = metadata["deep"]
    assert texts.tolist() == [b"a", b"b"]
    assert len(empty) == 0
    assert numbers.tolist() == [-1]
    assert metadata["after"] == 9


def test_arrays_nested_without_end_are_refused(files):
    value = array(U8, [1])
    for _ in range(30):
        value = array(ARRAY, [value])
    assert "nests arrays too deep" in files.refusal(build([pair("deep", ARRAY, value)]))


@pytest.mark.parametrize("kind", [13, 99, 2**32 - 1])
def test_an_unknown_kind_stops_with_the_offset(files, kind):
    alone = build([string("k") + struct.pack("<I", kind) + bytes(64)])
    inside = build([pair("k", ARRAY, struct.pack("<IQ", kind, 3) + bytes(64))])

    for raw in (alone, inside):
        text = files.refusal(raw)
        assert f"unknown kind {kind:,} at offset" in text
        assert '"k"' in text


def test_an_empty_key_is_an_error_and_the_process_goes_on(files):
    raw = header(0, 1) + struct.pack("<QIB", 0, BOOL, 1)
    assert len(raw) == 37
    assert "empty metadata key at offset 24" in files.refusal(raw)
    assert files.open(tiny()).metadata["x.small"] == -3


def test_the_same_key_twice_is_noticed_when_equal_and_refused_when_not(files):
    first, other = pair("k", STRING, "one"), pair("k", STRING, "two")

    same = files.open(build([first, first, pair("z", U8, 1)]))
    assert [n.code for n in same.notices] == ["duplicate-key"]
    assert same.metadata["z"] == 1
    text = files.refusal(build([first, other]))
    assert '"one" and "two"' in text


def test_text_that_is_not_utf8_stays_bytes_and_is_shown_escaped(files):
    file = files.open(build([pair(b"k\xff\x1b", STRING, b"\xff\x1b[2J"), pair("ok", STRING, "ü")]))

    (key,) = [k for k in file.metadata if k != "ok"]
    assert key.encode("utf-8", "surrogateescape") == b"k\xff\x1b"
    assert file.metadata[key] == b"\xff\x1b[2J"
    assert file.metadata["ok"] == "ü"
    from gguf_runtime.gguf.report import describe

    text = describe(file, kv=True)
    assert "\x1b" not in text
    assert "k\\xff\\x1b" in text
    text.encode()


@pytest.mark.parametrize("byte", [2, 7, 255])
def test_a_truth_value_is_0_or_1(files, byte):
    alone = build([pair("flag", BOOL, byte)])
    among = build([pair("flag", ARRAY, array(BOOL, [1, 0, byte, 1]))])
    for raw in (alone, among):
        text = files.refusal(raw)
        assert "no truth value" in text
        assert f"got {byte}" in text


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (build([string("k") + struct.pack("<IQ", STRING, 1 << 40) + b"x"]), "expected 1,099,511,627,776 bytes"),
        (build([pair("k", ARRAY, struct.pack("<IQ", U8, 1 << 61))]), "more elements than the file can hold"),
        (build([pair("k", ARRAY, struct.pack("<IQ", F32, 1 << 63) + bytes(99))]), "more elements"),
        (build([pair("k", ARRAY, struct.pack("<IQ", STRING, 1 << 61) + bytes(99))]), "more elements"),
        (build([pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1 << 30) + bytes(99))]), "more elements"),
        (header(0, 1 << 20) + bytes(14 << 20), "too many metadata keys"),
        (header(0, (1 << 64) - 1), "too many metadata keys"),
        (header((1 << 64) - 1, 0), "too many tensors"),
        (build([pair("k" * 70_000, U8, 1)]), "at most 65,535 bytes"),
        (build([string("k") + struct.pack("<I", ARRAY) + struct.pack("<IQ", STRING, 2) + string("a") + struct.pack("<Q", 99)]), "string 1 of 2"),
    ],
)  # fmt: skip
def test_absurd_lengths_are_refused_before_anything_is_allocated(files, raw, says):
    assert says in files.refusal(raw)


def test_a_vocabulary_of_262144_opens_within_the_promise(files):
    words = [b"\xe2\x96\x81" + str(i).encode() for i in range(262_144)]
    pairs = [
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, words)),
        pair("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ", F32, len(words)) + bytes(4 * len(words))),
        pair("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ", I32, len(words)) + bytes(4 * len(words))),
        pair("tokenizer.ggml.merges", ARRAY, array(STRING, words)),
    ]  # fmt: skip
    path = files.write(build(pairs))

    start = time.perf_counter()
    file = open_file(path)
    seconds = time.perf_counter() - start

    assert file.metadata["tokenizer.ggml.tokens"][262_143] == words[-1]
    assert seconds < 5 * PROMISED_S


def test_a_compiled_scanner_takes_the_place_of_the_python_one(files):
    calls = []

    def scan(data, offset, out):
        calls.append(len(out) - 1)
        return python_scan(data, offset, out)

    file = files.open(tiny(), compiled=Compiled(scan, lambda *_: None))
    assert calls == [4]
    assert file.metadata["tokenizer.ggml.tokens"].tolist() == [b"a", b"", "ü".encode(), b"\xff"]


@pytest.mark.parametrize("cut", range(len(string("ab") + string("") + string("xyz"))))
def test_a_scan_of_cut_strings_says_how_many_are_whole(cut):
    raw = string("ab") + string("") + string("xyz")
    whole = sum(cut >= end for end in (10, 18, 29))

    offsets = scan_strings(np.frombuffer(raw[:cut], np.uint8), 0, 3)

    assert offsets.tolist() == [0, 10, 18, 29][: whole + 1]


def test_very_long_text_stays_in_the_file(files):
    text = "ü" * (1 << 20)
    value = files.open(build([pair("long", STRING, text)])).metadata["long"]
    assert isinstance(value, memoryview)
    assert bytes(value).decode() == text
