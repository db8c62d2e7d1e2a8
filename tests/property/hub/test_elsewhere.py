"""Models that other programs keep: ollama's store, the hub's cache, LM Studio's folders (row P4)."""

from __future__ import annotations

import json
import os

import pytest

from gguf_runtime.errors import FileError, ModelError
from gguf_runtime.hub import hubcache, ollama
from gguf_runtime.hub.found import found
from gguf_runtime.hub.resolve import resolve

HEX = "0123456789abcdef" * 4
MODEL, ADAPTER = (f"application/vnd.ollama.image.{k}" for k in ("model", "adapter"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GGUF_RUNTIME_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(ollama, "stores", lambda: [tmp_path / ".ollama" / "models"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gguf(path, n=60):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + bytes(n))
    return path


def layer(kind=MODEL, digest=f"sha256:{HEX}"):
    return {"mediaType": kind, "digest": digest, "size": 64}


def manifest(home, name, layers, raw=None):
    path = home / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schemaVersion": 2, "layers": layers})
    path.write_bytes(text.encode() if raw is None else raw)
    return path


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("ollama:llama3.2", "library/llama3.2/latest"),
        ("ollama:llama3.2:1b", "library/llama3.2/1b"),
        ("ollama:me/mine", "me/mine/latest"),
        ("OLLAMA:library/llama3.2:1b-instruct-q4_K_M", "library/llama3.2/1b-instruct-q4_K_M"),
    ],
)
def test_a_model_of_ollama_is_used_where_it_lies(home, typed, name):
    blob = gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    manifest(home, name, [layer("application/vnd.ollama.image.template"), layer()])
    assert resolve(typed) == blob


def test_a_model_of_another_registry_is_named_with_its_host(home):
    blob = gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    manifest(home, "../hf.co:8080/org/repo-GGUF/Q4_K_M", [layer()])
    assert resolve("ollama:hf.co:8080/org/repo-GGUF:Q4_K_M") == blob
    assert [f.name for f in found()] == ["ollama:hf.co:8080/org/repo-GGUF:Q4_K_M"]


def test_the_names_that_list_shows_are_those_that_run(home):
    gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    for name in ("library/a/latest", "library/a/7b", "me/b/latest"):
        manifest(home, name, [layer()])
    names = [f.name for f in found()]
    assert names == ["ollama:a", "ollama:a:7b", "ollama:me/b"]
    assert {resolve(n) for n in names} == {home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}"}


def test_a_near_miss_of_ollamas_names_gets_a_suggestion(home):
    gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    manifest(home, "library/llama3.2/latest", [layer()])
    with pytest.raises(ModelError, match="ollama has no model") as e:
        resolve("ollama:lama3.2")
    assert e.value.hint == "did you mean ollama:llama3.2?"


def test_a_model_with_an_adapter_is_refused(home):
    gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    manifest(home, "library/tuned/latest", [layer(), layer(ADAPTER)])
    with pytest.raises(ModelError, match="adapters are not applied") as e:
        resolve("ollama:tuned")
    assert "merged" in (e.value.hint or "")
    assert found() == []


def test_a_missing_layer_names_the_file_and_the_command(home):
    manifest(home, "library/gone/latest", [layer()])
    with pytest.raises(FileError, match="a layer of this model is not there") as e:
        resolve("ollama:gone")
    assert f"sha256-{HEX}" in (e.value.expected or "")
    assert e.value.hint == "ollama pull gone"


DEEP = b'{"layers":' + b"[" * 200_000


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"layers": 7}',
        b'{"layers": [7]}',
        b'{"layers": {"a": 1}}',
        DEEP,
        b'{"layers": [' + b" " * (1 << 20) + b"]}",
        b"\xff\xfe\x00",
        json.dumps({"layers": [layer(digest="sha256:../../../etc/passwd")]}).encode(),
        json.dumps({"layers": [layer(digest=f"sha256-{HEX}")]}).encode(),
        json.dumps({"layers": [layer(digest=7)]}).encode(),
    ],
)
def test_a_damaged_or_hostile_manifest_is_one_plain_error(home, raw):
    gguf(home / ".ollama" / "models" / "blobs" / f"sha256-{HEX}")
    manifest(home, "library/bad/latest", [], raw)
    with pytest.raises(FileError, match="manifest of ollama is damaged") as e:
        resolve("ollama:bad")
    assert "ollama" in (e.value.hint or "")
    assert found() == []


def test_a_pipe_for_a_manifest_is_not_waited_for(home):
    path = manifest(home, "library/pipe/latest", [])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError):
        resolve("ollama:pipe")


@pytest.mark.parametrize(
    "name",
    ["ollama:", "ollama:..", "ollama:../../x", "ollama:a/b/c/d/e", "ollama:a:b/../c", "ollama:a b"],
)
def test_names_that_would_leave_the_store_are_refused(home, name):
    with pytest.raises(ModelError, match="is no name of an ollama model"):
        resolve(name)


def test_loops_of_links_in_a_store_end(home):
    folder = home / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder)
    assert found() == []


# ---- the hub's cache ---------------------------------------------------------------------------


def snapshot(home, repo, commit, *files, main=True):
    folder = home / ".cache" / "huggingface" / "hub" / ("models--" + repo.replace("/", "--"))
    for i, file in enumerate(files):
        blob = gguf(folder / "blobs" / f"{commit}{i}", 60 + i)
        link = folder / "snapshots" / commit / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir(exist_ok=True)
    if main:
        (folder / "refs" / "main").write_text(commit)
    return folder / "snapshots" / commit


def test_a_model_of_the_cache_is_found_by_quantization_or_file(home):
    here = snapshot(home, "org/m", "aaaaaaa", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-F16.gguf")
    assert resolve("hf:org/m") == here / "m-Q4_K_M.gguf"
    assert resolve("hf:org/m:q8_0") == here / "m-Q8_0.gguf"
    assert resolve("hf:org/m:m-Q8_0.gguf") == here / "m-Q8_0.gguf"
    assert [f.name for f in found()] == ["hf:org/m:Q4_K_M", "hf:org/m:Q8_0"]


def test_the_only_model_of_a_repository_needs_no_quantization(home):
    here = snapshot(home, "org/one", "aaaaaaa", "one.Q5_1.gguf")
    assert resolve("hf:org/one") == here / "one.Q5_1.gguf"


def test_the_main_branch_goes_before_other_commits(home):
    snapshot(home, "org/m", "bbbbbbb", "m-Q4_K_M.gguf", "old-Q8_0.gguf", main=False)
    here = snapshot(home, "org/m", "aaaaaaa", "m-Q4_K_M.gguf")
    assert resolve("hf:org/m") == here / "m-Q4_K_M.gguf"
    assert resolve("hf:org/m:Q8_0").parent.name == "bbbbbbb"


def test_a_link_to_nothing_is_no_model(home):
    here = snapshot(home, "org/m", "aaaaaaa", "m-Q4_K_M.gguf")
    (here / "m-Q4_K_M.gguf").resolve().unlink()
    with pytest.raises(ModelError, match="hf:org/m is not on this machine") as e:
        resolve("hf:org/m")
    assert "gguf-runtime pull hf:org/m" in (e.value.hint or "")


def test_a_missing_part_is_named_with_the_command(home):
    snapshot(home, "org/m", "aaaaaaa", "m-Q4_K_M-00001-of-00002.gguf")
    with pytest.raises(FileError, match="1 parts of this model are missing") as e:
        resolve("hf:org/m")
    assert "m-Q4_K_M-00002-of-00002.gguf" in (e.value.got or "")
    assert e.value.hint == "gguf-runtime pull hf:org/m"


def test_several_models_without_the_default_are_listed_with_sizes(home):
    snapshot(home, "org/m", "aaaaaaa", "m-Q5_0.gguf", "m-Q8_0.gguf")
    with pytest.raises(ModelError, match="no Q4_K_M here") as e:
        resolve("hf:org/m")
    assert "Q5_0 (0 kB), Q8_0 (0 kB)" in (e.value.expected or "")


def test_another_place_of_the_cache_is_taken_from_the_environment(home, monkeypatch):
    snapshot(home, "org/m", "aaaaaaa", "m-Q4_K_M.gguf")
    moved = (home / ".cache" / "huggingface").rename(home / "with space ü")
    monkeypatch.setenv("HF_HOME", str(moved))
    assert resolve("hf:org/m").is_file()
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "empty"))
    with pytest.raises(ModelError):
        resolve("hf:org/m")


@pytest.mark.parametrize("name", ["hf:", "hf:a", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a--b/c"])
def test_names_that_are_none_of_the_hub_show_the_form(home, name):
    with pytest.raises(ModelError, match="names nothing on the hub") as e:
        hubcache.parse(name)
    assert "hf:ORG/NAME:QUANT" in (e.value.expected or "")


# ---- LM Studio, addresses -----------------------------------------------------------------------


def test_models_of_lm_studio_are_listed_by_path_with_all_their_parts(home):
    folder = home / ".lmstudio" / "models" / "publisher" / "repo"
    first = gguf(folder / "big-00001-of-00002.gguf")
    gguf(folder / "big-00002-of-00002.gguf")
    gguf(folder / "mmproj-model-f16.gguf")
    rows = found()
    assert [(r.name, r.size_bytes, r.source) for r in rows] == [(str(first), 128, "LM Studio")]


def test_a_moved_home_of_lm_studio_is_followed(home):
    (home / ".lmstudio-home-pointer").write_text(str(home / "elsewhere") + "\n")
    path = gguf(home / "elsewhere" / "models" / "p" / "r" / "m.gguf")
    assert [r.path for r in found()] == [path]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("https://huggingface.co/org/m-GGUF", "hf:org/m-GGUF?"),
        ("huggingface.co/org/m-GGUF/tree/main", "hf:org/m-GGUF?"),
        (
            "https://huggingface.co/org/m/resolve/main/a-Q8_0.gguf?download=true",
            "hf:org/m:a-Q8_0.gguf?",
        ),
        ("https://huggingface.co/org/m/blob/main/sub/a.gguf", "hf:org/m:sub/a.gguf?"),
        ("hf.co/org/m:Q4_K_M", "hf:org/m:Q4_K_M?"),
    ],
)
def test_an_address_of_the_hub_is_turned_into_its_name(home, typed, meant):
    with pytest.raises(ModelError, match="address of a page") as e:
        resolve(typed)
    assert e.value.hint == f"did you mean {meant}"


def test_another_address_says_how_to_fetch_it(home):
    with pytest.raises(ModelError, match="not read from an address") as e:
        resolve("https://example.org/m.gguf")
    assert "curl -LO" in (e.value.hint or "")


def test_a_repository_without_its_prefix_is_recognised(home):
    with pytest.raises(FileError, match="no such file") as e:
        resolve("Qwen/Qwen3-0.6B-GGUF")
    assert "pull hf:Qwen/Qwen3-0.6B-GGUF" in (e.value.hint or "")


def test_without_a_home_nothing_is_found_and_nothing_breaks(home, monkeypatch):
    monkeypatch.setenv("HOME", "")
    assert found() == []
    with pytest.raises(ModelError):
        resolve("hf:org/m")
