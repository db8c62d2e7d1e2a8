"""From a word to a file: names, paths, folders, shards, near misses."""

from __future__ import annotations

import pytest

from gguf_runtime.errors import FileError, ModelError
from gguf_runtime.hub.resolve import resolve


@pytest.fixture
def models(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("GGUF_RUNTIME_MODELS", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def gguf(path):
    path.write_bytes(b"GGUF" + bytes(60))
    return path


def test_a_path_of_any_name_is_taken_as_it_is(models, tmp_path):
    blob = gguf(tmp_path / "sha256-0123")
    assert resolve("sha256-0123").samefile(blob)
    assert resolve(blob) == blob


def test_a_folder_with_one_model_is_that_model(models, tmp_path):
    one = gguf(models / "one.gguf")
    assert resolve(models) == one


def test_a_folder_without_suffixes_is_searched_by_magic(models):
    (models / "notes").write_text("x")
    blob = gguf(models / "sha256-1")
    assert resolve(models) == blob


def test_a_folder_with_several_models_lists_them_with_sizes(models):
    gguf(models / "a.gguf")
    gguf(models / "b.gguf")
    with pytest.raises(FileError) as e:
        resolve(models)
    assert "a.gguf (0 kB), b.gguf (0 kB)" in str(e.value)


def test_any_shard_leads_to_the_first(models):
    first = gguf(models / "m-00001-of-00002.gguf")
    second = gguf(models / "m-00002-of-00002.gguf")
    assert resolve(second) == resolve(first) == resolve(models) == first


def test_a_file_in_the_folder_of_models_has_its_stem_as_name(models):
    mine = gguf(models / "mine.gguf")
    assert resolve("mine") == mine


def test_a_catalog_name_that_was_not_pulled_gives_the_command(models):
    with pytest.raises(ModelError) as e:
        resolve("smollm2")
    assert "gguf-runtime pull smollm2" in str(e.value)
    assert "Apache-2.0" in str(e.value)


def test_a_half_file_under_a_catalog_name_is_not_used(models):
    gguf(models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    with pytest.raises(ModelError, match="not on this machine"):
        resolve("smollm2")


def test_a_near_miss_gets_the_name(models):
    gguf(models / "my-model.gguf")
    with pytest.raises(ModelError, match="no model and no file named") as e:
        resolve("my-modl")
    assert e.value.hint == "did you mean my-model?"


def test_a_mistyped_path_gets_the_neighbour(models):
    gguf(models / "phi-4.gguf")
    with pytest.raises(FileError, match="no such file") as e:
        resolve(str(models / "phi4.gguf"))
    assert "phi-4.gguf" in (e.value.hint or "")


def test_a_link_that_leads_to_nothing_or_in_a_circle_says_so(models):
    (models / "gone.gguf").symlink_to(models / "nowhere.gguf")
    (models / "loop.gguf").symlink_to(models / "loop.gguf")
    with pytest.raises(FileError, match="this link leads to nothing") as e:
        resolve(models / "gone.gguf")
    assert str(models / "nowhere.gguf") in (e.value.expected or "")
    with pytest.raises(FileError, match="symbolic links"):
        resolve(str(models / "loop.gguf"))


@pytest.mark.parametrize("text", ["a\0b", "./a\0b", "x" * 5000, "./" + "x" * 5000, "\udcff.gguf"])
def test_what_can_be_no_path_is_our_error(models, text):
    with pytest.raises((FileError, ModelError)) as e:
        resolve(text)
    assert str(e.value).isprintable() or "\n" in str(e.value)


@pytest.mark.parametrize("name", ["", "hf:org/repo", "ollama:llama3", "no-such-model-at-all"])
def test_what_cannot_be_a_model_is_a_model_error(models, name):
    with pytest.raises(ModelError):
        resolve(name)
