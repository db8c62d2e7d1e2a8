"""Versions, byte order, files of other kinds, things that are no file (rows G12, G20)."""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import tarfile
import zipfile

import pytest

from gguf_runtime import Model
from gguf_runtime.errors import ExitCode, FileError, ModelError
from gguf_runtime.gguf import open_file, report
from tests.gguf_bytes import STRING, build, header, pair, tiny


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


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"x" * 100)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.bin"))
    return buffer.getvalue()


SAFETENSORS = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("raw", "says", "cure"),
    [
        (b"", "an empty file", "download it again"),
        (bytes(4096), "begins with zero bytes", "download it again"),
        (
            struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + bytes(4),
            "a safetensors file",
            "get a GGUF file of this model",
        ),
        (zipped("model/data.pkl"), "a zip archive of PyTorch weights", "get a GGUF file"),
        (zipped("model.gguf"), "a zip archive", "unpack it"),
        (zipped("model.gguf")[-22:], "an empty zip archive", "unpack it"),
        (pickle.dumps({"a": 1}, protocol=2), "a Python pickle", "get a GGUF file of this model"),
        (pickle.dumps({"a": 1}, protocol=5), "a Python pickle", "get a GGUF file of this model"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "a web page", "/resolve/"),
        (b"\n\n  <HTML>", "a web page", "copy the link of the file itself"),
        (b'<?xml version="1.0"?><Error/>', "an XML document", "download it again"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "a git-lfs pointer",
            "git lfs pull",
        ),
        (b"lmgg" + bytes(60), "a GGML file from before GGUF", "convert the original model again"),
        (b"fmgg" + bytes(60), "a GGMF file from before GGUF", "convert the original model again"),
        (b"tjgg\x03" + bytes(60), "a GGJT file from before GGUF", "convert the original model"),
        (b"algg" + bytes(60), "a GGLA adapter from before GGUF", "get a GGUF file of it"),
        (b"\x1f\x8b\x08" + bytes(60), "a gzip archive", "unpack it"),
        (tarred(), "a tar archive", "unpack it"),
        (b"\x93NUMPY\x01\x00" + bytes(60), "a numpy array", "get a GGUF file of this model"),
        (b"MZqFpD='\n" + bytes(60), "a llamafile", "unzip FILE '*.gguf'"),
        (b'{"error":"not found"}', "a JSON file", "name the GGUF file"),
        (b'{"metadata":{"total_size":9},"weight_map":{}}', "the index of a model", "get a GGUF"),
        (
            b'{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json"}',
            "an ollama manifest",
            "ollama:NAME",
        ),
        (b"# mine\nFROM ./model.gguf\nSYSTEM hi\n", "a Modelfile of ollama", "after FROM"),
        (b"Entry not found", "a text file", "look into it"),
        (b"\x00\x01\x02\x03" * 20, "a file of another kind", "list --found"),
        (b"GGU", "a text file", "look into it"),
    ],
)
def test_files_of_another_kind_are_named_with_a_cure(files, raw, says, cure):
    text = files.refusal(raw)
    assert f"is {says}" in text or says in text
    assert "expected a GGUF file" in text
    assert cure in text.splitlines()[-1]


@pytest.mark.parametrize(
    "name",
    [
        "m.gguf.part",
        "m.gguf.incomplete",
        "m.gguf.crdownload",
        "M.GGUF.Download",
        "m.gguf.aria2",
        "sha256-0123-partial",
        "sha256-0123-partial-7",
    ],
)
def test_an_unfinished_download_is_not_opened_though_its_header_is_sound(files, name):
    path = files.write(tiny(), name)
    with pytest.raises(FileError, match="is an unfinished download") as caught:
        open_file(path)
    assert "finish the download" in (caught.value.hint or "")


def test_a_file_that_aria2_still_fills_is_not_opened(files):
    path = files.write(tiny())
    mark = files.write(b"", "m.gguf.aria2")
    with pytest.raises(FileError, match="is an unfinished download") as caught:
        open_file(path)
    assert f"rm '{mark}'" in (caught.value.hint or "")
    mark.unlink()
    assert open_file(path).tensors


@pytest.mark.parametrize(
    ("pairs", "says", "cure"),
    [
        ({"general.type": "adapter", "general.architecture": "llama"}, "LoRA", "merged"),
        ({"general.type": "mmproj", "general.architecture": "clip"}, "projector", "other GGUF"),
        ({"general.architecture": "clip"}, "projector", "the language model"),
        ({"general.type": "imatrix"}, "importance matrix", "name the model"),
        ({"general.architecture": "controlvector"}, "control vector", "name the model itself"),
    ],
)
def test_a_sound_file_that_holds_no_model_says_what_it_holds(files, pairs, says, cure):
    raw = build(
        [pair(k, STRING, v) for k, v in pairs.items()],
        [("x", (4,), 0, struct.pack("4f", 1, 2, 3, 4))],
    )
    path = files.write(raw)
    with pytest.raises(ModelError, match=says) as caught:
        Model(path)
    assert cure in (caught.value.hint or "")
    assert says in report.describe(files.open(raw), supported=["llama"])


def test_a_file_of_a_vocabulary_alone_says_so(files):
    raw = build([pair("general.architecture", STRING, "llama")])
    with pytest.raises(ModelError, match="a vocabulary and no weights"):
        Model(files.write(raw))


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


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device", "/dev/zero"])
def test_a_pipe_a_socket_or_a_device_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "m.gguf"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "a named pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            server.bind(str(path))
        else:
            path.symlink_to("/dev/zero" if kind == "/dev/zero" else "/dev/null")
        for call in (open_file, Model, Model.plan):
            with pytest.raises(FileError, match="is no regular file") as caught:
                call(path)
    assert caught.value.got == ("a device" if kind == "/dev/zero" else kind)
    assert "save it to a file first" in (caught.value.hint or "")


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
