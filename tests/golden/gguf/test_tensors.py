"""The tensor table: bounds, sizes, alignment, empty tensors, trailing bytes (rows G1 to G10)."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest

from gguf_runtime.errors import ModelError
from gguf_runtime.gguf.ggml_types import GGML_TYPES
from tests.gguf_bytes import STRING, U8, U32, build, entry, header, pair, tiny

ARCH = pair("general.architecture", STRING, "llama")
F32, Q4_K, UNKNOWN = 0, 12, 142


def file_of(*rows: bytes, data: bytes = bytes(4096)) -> bytes:
    start = header(len(rows), 1) + ARCH + b"".join(rows)
    return start + bytes(-len(start) % 32) + data


def test_tensor_bytes_are_a_read_only_view_of_rows(files):
    file = files.open(tiny())

    rows = file.tensor_bytes("token_embd.weight")
    assert rows.shape == (4, 34)
    assert rows.tobytes() == bytes(range(136))
    assert not rows.flags.writeable
    norm = file.tensor_bytes("blk.0.attn_norm.weight")
    assert norm.shape == (1, 128)
    assert norm.view(np.float32)[0].tolist() == list(range(32))
    info = file.tensors["blk.0.ffn_up.weight"]
    assert (info.shape, info.n_rows, info.row_bytes, info.size_bytes) == ((32, 64), 64, 18, 1152)
    assert info.qtype is not None
    assert info.qtype.name == info.type_name == "Q4_0"


def test_views_outlive_the_file(files):
    with files.open(tiny()) as file:
        rows = file.tensor_bytes("token_embd.weight")
    assert rows[0, 5] == 5


def test_released_pages_can_be_read_again(files):
    raw = os.urandom(1 << 20)
    file = files.open(build([], [("w", (1 << 18,), F32, raw)]))
    rows = file.tensor_bytes("w")
    assert rows.tobytes() == raw
    file.release("w")
    assert rows.tobytes() == raw


@pytest.mark.parametrize("alignment", [1, 8, 16, 32, 64, 4096])
def test_every_alignment_and_header_length_reads_back_bit_exactly(files, alignment):
    a, b = os.urandom(52), os.urandom(128)
    for length in range(1, 33):
        pairs = [pair("general.alignment", U32, alignment), pair("k" * length, U8, 1)]
        tensors = [("a", (13,), F32, a), ("b", (32,), F32, b)]

        file = files.open(build(pairs, tensors, alignment=alignment))

        assert file.tensor_bytes("a").tobytes() == a
        assert file.tensor_bytes("b").tobytes() == b
        assert all(t.offset % alignment == 0 for t in file.tensors.values())


@pytest.mark.parametrize("value", [0, 3, 24, 2**32 - 1])
def test_an_alignment_that_is_no_power_of_two_is_refused(files, value):
    text = files.refusal(build([pair("general.alignment", U32, value)]))
    assert "general.alignment" in text
    assert "power of two" in text


@pytest.mark.parametrize(
    ("shape", "type_id"),
    [
        ((2**42 + 1,), F32),
        ((2**62, 4), F32),
        ((2**62, 2**62, 2**62, 2**62), Q4_K),
        ((256, 2**55), Q4_K),
        ((1025,), F32),
    ],
)
def test_sizes_that_would_wrap_in_64_bits_are_past_the_end(files, shape, type_id):
    text = files.refusal(file_of(entry("t", shape, type_id, 0)))
    assert "tensor t (" in text
    assert "ends past the end of the file" in text
    assert "expected at least" in text


def test_a_dimension_above_63_bits_is_refused(files):
    assert "dimension" in files.refusal(file_of(entry("t", (2**63,), F32, 0)))


def test_the_sum_of_all_tensors_is_checked_against_the_file(files):
    rows = [entry(f"t{i}", (512,), F32, 0) for i in range(8)]
    text = files.refusal(file_of(*rows))
    assert "the tensors together are larger than the file" in text
    assert "expected at most 4,096 bytes, got 16,384" in text


@pytest.mark.parametrize("offset", [1 << 40, (1 << 64) - 32, (1 << 64) - 4096, 1 << 63, 4096])
def test_offsets_that_would_wrap_are_past_the_end(files, offset):
    assert "past the end" in files.refusal(file_of(entry("t", (8,), F32, offset)))


def test_tensors_that_overlap_are_refused(files):
    text = files.refusal(file_of(entry("a", (16,), F32, 0), entry("b", (8,), F32, 32)))
    assert 'tensors "a" and "b" overlap' in text


def test_an_offset_off_the_alignment_is_refused(files):
    assert "alignment" in files.refusal(file_of(entry("a", (8,), F32, 8)))


def test_rows_that_are_no_whole_blocks_are_refused(files):
    text = files.refusal(file_of(entry("a", (255, 2), Q4_K, 0)))
    assert "expected a multiple of 256, got 255" in text


def test_too_many_dimensions_names_and_namesakes_are_refused(files):
    assert "at most 4" in files.refusal(file_of(entry("a", (1,) * 5, F32, 0)))
    assert "no name" in files.refusal(file_of(entry("", (1,), F32, 0)))
    assert "at most 256 bytes" in files.refusal(file_of(entry("n" * 257, (1,), F32, 0)))
    twice = file_of(entry("a", (8,), F32, 0), entry("a", (8,), F32, 32))
    assert 'tensor "a" stands twice' in files.refusal(twice)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (256, 0), (5, 0, 3), (0, 2**61, 7)])
def test_empty_tensors_are_listed_and_take_no_room(files, shape):
    flag = entry("flag", shape, F32, 64)
    file = files.open(file_of(entry("a", (16,), F32, 0), flag, data=bytes(range(64))))

    assert list(file.tensors) == ["a", "flag"]
    assert file.tensors["flag"].size_bytes == 0
    assert file.tensor_bytes("flag").size == 0
    assert file.tensor_bytes("a").tobytes() == bytes(range(64))


def test_a_tensor_without_dimensions_is_one_value(files):
    file = files.open(file_of(entry("s", (), F32, 0), data=struct.pack("<f", 2.5)))
    assert file.tensor_bytes("s").view(np.float32).item() == 2.5


def test_bytes_after_the_last_tensor_are_ignored(files):
    raw = file_of(entry("a", (8,), F32, 0), data=bytes(range(32)))
    for extra in (1, 20, 5000):
        file = files.open(raw + b"GGUF" + bytes(extra))
        assert file.tensor_bytes("a").tobytes() == bytes(range(32))
        assert [n.code for n in file.notices] == (["trailing-bytes"] if extra == 5000 else [])


def test_a_type_without_kernels_is_listed_and_refused_by_name_when_read(files):
    raw = file_of(entry("a", (8,), F32, 0), entry("w", (64,), UNKNOWN, 32), data=bytes(96))
    file = files.open(raw)

    info = file.tensors["w"]
    assert (info.qtype, info.type_name, info.size_bytes) == (None, "type 142", 64)
    for read in (file.qtype, file.tensor_bytes):
        with pytest.raises(ModelError, match=r"tensor type 142 \(type 142\) in w is not supported"):
            read("w")


def test_block_sizes_equal_those_of_the_gguf_package():
    from gguf.constants import GGML_QUANT_SIZES

    outdated = {9}  # the package still counts Q8_1 with float32 scales; ggml-common.h has 36 bytes
    theirs = {int(t): size for t, size in GGML_QUANT_SIZES.items() if int(t) not in outdated}
    ours = {i: (row.values, row.size_bytes) for i, row in GGML_TYPES.items()}
    assert {i: ours.get(i) for i in theirs} == theirs


def test_block_sizes_equal_those_of_the_kernels():
    from quant.types import TYPES

    for t in TYPES.values():
        row = GGML_TYPES[t.id]
        assert (row.name, row.values, row.size_bytes) == (t.name, t.values, t.bytes)
