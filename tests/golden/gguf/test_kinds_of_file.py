"""Versions, byte order, files of other kinds, things that are no file (rows G12, G20)."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile

import pytest

from gguf_runtime.errors import ExitCode, FileError, ModelError
from gguf_runtime.gguf import open_file
from tests.gguf_bytes import header, tiny


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_load_alike(files, version):
    file = files.open(tiny(version=version))
    assert file.version == version
    assert file.metadata["x.long"] == -(1 << 40)
    assert file.tensor_bytes("token_embd.weight").tobytes() == bytes(range(136))


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (0, "version 0 does not exist"),
        (1, "version 1 is not supported"),
        (4, "version 4 is newer than this reader"),
        (0xFFFFFFFF, "version 4,294,967,295 does not exist"),
    ],
)
def test_other_versions_are_refused_by_number(files, version, says):
    text = files.refusal(header(0, 0, version))
    assert says in text
    assert "expected version 2 or 3" in text


def test_big_endian_files_are_refused_by_name_and_can_be_listed(files):
    raw = tiny(order=">")
    assert "big-endian GGUF, version 3" in files.refusal(raw)

    file = files.open(raw, foreign_order=True)

    little = files.open(tiny())
    for key, value in little.metadata.items():
        other = file.metadata[key]
        if key in ("tokenizer.ggml.tokens", "x.nested"):
            assert [list(v) if not isinstance(v, bytes) else v for v in other] == [
                list(v) if not isinstance(v, bytes) else v for v in value
            ]
        else:
            assert list(other) == list(value) if hasattr(value, "tolist") else other == value
    assert {n: t.shape for n, t in file.tensors.items()} == {
        n: t.shape for n, t in little.tensors.items()
    }
    with pytest.raises(ModelError, match="big-endian"):
        file.tensor_bytes("token_embd.weight")


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", b"x" * 100)
    return buffer.getvalue()


SAFETENSORS = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "an empty file"),
        (bytes(4096), "begins with zero bytes"),
        (struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + bytes(4), "a safetensors file"),
        (zipped(), "a zip archive"),
        (pickle.dumps({"a": 1}, protocol=2), "a Python pickle"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "a web page"),
        (b"\n\n  <HTML>", "a web page"),
        (b'<?xml version="1.0"?><Error/>', "an XML document"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "a git-lfs pointer",
        ),
        (b"lmgg" + bytes(60), "a GGML file from before GGUF"),
        (b"fmgg" + bytes(60), "a GGMF file from before GGUF"),
        (b"tjgg\x03" + bytes(60), "a GGJT file from before GGUF"),
        (b"algg" + bytes(60), "a GGLA adapter from before GGUF"),
        (b"\x1f\x8b\x08" + bytes(60), "a gzip archive"),
        (b'{"error":"not found"}', "a JSON file"),
        (b"Entry not found", "a text file"),
        (b"\x00\x01\x02\x03" * 20, "a file of another kind"),
        (b"GGU", "a text file"),
    ],
)
def test_files_of_another_kind_are_named(files, raw, says):
    text = files.refusal(raw)
    assert f"is {says}" in text or says in text
    assert "expected a GGUF file" in text


def test_what_is_no_file_is_said_plainly(tmp_path):
    with pytest.raises(FileError, match="there is no such file") as caught:
        open_file(tmp_path / "none.gguf")
    assert caught.value.exit_code is ExitCode.MODEL
    with pytest.raises(FileError, match="holds no GGUF file"):
        open_file(tmp_path)
    with pytest.raises(FileError, match="is no regular file"):
        open_file("/dev/null")
    with pytest.raises(FileError, match="cannot be opened"):
        open_file(tmp_path / ("n" * 5000))
    with pytest.raises(FileError):
        open_file("a\0b")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileError, match="is no regular file"):
        open_file(tmp_path / "pipe.gguf")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_said_plainly(files):
    path = files.write(tiny())
    path.chmod(0)
    with pytest.raises(FileError, match="permission denied"):
        open_file(path)


def test_the_fingerprint_changes_with_header_size_and_weights(files):
    raw = tiny()
    prints = {files.open(raw).fingerprint(), files.open(raw).fingerprint()}
    assert len(prints) == 1
    changed = bytearray(raw)
    changed[-1] ^= 1
    prints |= {files.open(bytes(changed)).fingerprint(), files.open(raw + b"\0").fingerprint()}
    prints.add(files.open(raw.replace(b"tiny", b"tinY")).fingerprint())
    assert len(prints) == 4


def test_a_closed_file_says_so(files):
    file = files.open(tiny())
    file.close()
    for read in (file.fingerprint, lambda: file.tensor_bytes("token_embd.weight")):
        with pytest.raises(FileError, match="has been closed"):
            read()
    assert file.metadata["x.small"] == -3
