"""Models in several files: any part or the folder, missing parts, contradictions (rows G13 to G15)."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from gguf_runtime.errors import FileError
from gguf_runtime.gguf import open_file
from tests.gguf_bytes import I32, STRING, U16, U32, build, pair, tiny

F32 = 0


def part(no: int, count: int, total: int = 4, names: str = "ab") -> bytes:
    pairs = [
        pair("split.no", U16, no),
        pair("split.count", U16, count),
        pair("split.tensors.count", I32, total),
    ]
    if no == 0:
        pairs += [pair("general.architecture", STRING, "llama"), pair("llama.block_count", U32, 1)]
    tensors = [(f"{no}.{n}", (8,), F32, bytes([no]) * 32) for n in names]
    return build(pairs, tensors)


@pytest.fixture
def split(files):
    def write(**changes: bytes | None):
        parts = {"00001": part(0, 2), "00002": part(1, 2)} | changes
        return [
            files.write(raw, f"m-{no}-of-00002.gguf")
            for no, raw in sorted(parts.items())
            if raw is not None
        ]

    return write


def test_any_part_and_the_folder_open_the_same_model(split):
    first, second = split()
    for path in (first, second, first.parent, str(second)):
        file = open_file(path)
        assert file.path == first
        assert file.paths == (first, second)
        assert file.architecture == "llama"
        assert list(file.tensors) == ["0.a", "0.b", "1.a", "1.b"]
        assert [t.shard for t in file.tensors.values()] == [0, 0, 1, 1]
        assert file.tensor_bytes("1.b").tobytes() == b"\1" * 32
        assert file.size_bytes == first.stat().st_size + second.stat().st_size


def test_parts_written_by_the_gguf_package_open(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama", split_max_tensors=2)
    weights = {f"t{i}": np.full((4, 8), i, np.float32) for i in range(5)}
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = open_file(tmp_path)

    assert len(file.paths) == 3
    for name, weight in weights.items():
        assert file.tensor_bytes(name).view(np.float32).tolist() == weight.tolist()


def test_missing_parts_are_named(files):
    files.write(part(1, 4), "m-00002-of-00004.gguf")
    with pytest.raises(FileError) as caught:
        open_file(files.folder)
    text = str(caught.value)
    assert "3 of 4 parts are missing" in text
    for no in (1, 3, 4):
        assert f"m-0000{no}-of-00004.gguf" in text


def test_only_the_metadata_decide_whether_a_file_is_a_part(files):
    path = files.write(tiny(), "m-00001-of-00013.gguf")
    assert open_file(path).paths == (path,)
    alone = files.write(part(0, 1, total=2), "n-00001-of-00001.gguf")
    assert len(open_file(alone).tensors) == 2


def test_a_part_under_a_name_that_contradicts_it_is_refused(split, files):
    first, second = split()
    renamed = files.write(second.read_bytes(), "weights.gguf")
    with pytest.raises(FileError, match="its name does not say so") as caught:
        open_file(renamed)
    assert "-00002-of-00002.gguf" in str(caught.value)
    split(**{"00002": part(0, 2)})
    with pytest.raises(FileError, match="contradict its name"):
        open_file(first)


def test_a_wrong_total_and_a_tensor_in_two_parts_are_refused(split):
    (first, _) = split(**{"00001": part(0, 2, total=5)})
    with pytest.raises(FileError, match=r"split\.tensors\.count") as caught:
        open_file(first)
    assert "expected 5 tensors in 2 parts, got 4" in str(caught.value)
    twin = build(
        [pair("split.no", U16, 1), pair("split.count", U16, 2)], [("0.a", (8,), F32, bytes(32))]
    )
    (first, _) = split(**{"00002": twin})
    with pytest.raises(FileError, match=r'tensor "0\.a" stands in two parts'):
        open_file(first)


@pytest.mark.parametrize(("no", "count"), [(5, 3), (0, 65535)])
def test_split_numbers_out_of_range_are_refused(files, no, count):
    path = files.write(part(no, count), "m-00001-of-00003.gguf")
    with pytest.raises(FileError, match="out of range"):
        open_file(path)


def test_a_folder_with_several_models_lists_them(files):
    files.write(tiny(), "a.gguf")
    files.write(tiny(), "b.gguf")
    with pytest.raises(FileError, match="holds 2 models") as caught:
        open_file(files.folder)
    assert "a.gguf, b.gguf" in str(caught.value)
