"""`list`, `rm`, and the offer to fetch a model, as a person meets them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from gguf_runtime.hub.catalog import entries
from tests.e2e.test_pull_hub import NAME, cache
from tests.e2e.test_pull_hub import call as call
from tests.e2e.test_pull_hub import own as own
from tests.e2e.test_pull_hub import repos as repos
from tests.e2e.test_pull_hub import shop as shop
from tests.tiny import SMALL

HANG_S = 300


@pytest.fixture
def folder(tmp_path):
    """A folder of models: a whole catalog model (by its size), a private file, a cut pull."""
    models = tmp_path / "models"
    (models / ".pull-gemma-3-270m").mkdir(parents=True)
    (models / ".pull-gemma-3-270m" / "a.whl.0123.part").write_bytes(bytes(2_000_000))
    entry = entries()["smollm2"]
    with (models / entry.file).open("wb") as f:
        f.truncate(entry.size_bytes)
    (models / "mine.gguf").write_bytes(b"GGUF")
    return models


def test_list_says_what_is_ready_and_how_far_a_cut_pull_came(gg, folder):
    rows = [r.split() for r in gg("list", GGUF_RUNTIME_MODELS=str(folder)).out.splitlines()]
    states = {r[0]: " ".join(r[-8:]) for r in rows[1:]}
    assert states["smollm2"].endswith("Apache-2.0 ready")
    assert states["gemma-3-270m"].endswith("2 MB fetched, go on: gg pull gemma-3-270m")
    assert states["mine"].endswith("ready")


def test_rm_takes_a_pulled_model_and_the_rest_of_a_cut_pull(gg, folder):
    env = {"GGUF_RUNTIME_MODELS": str(folder)}
    asked = gg("rm", "smollm2", **env)
    assert (asked.code, asked.out) == (2, "")
    assert "whether to delete smollm2 (98 MB) cannot be asked" in asked.err
    assert "gguf-runtime rm smollm2 --yes" in asked.err
    assert gg("rm", "smollm2", "--yes", **env).err == "deleted smollm2 (98 MB)\n"
    assert gg("rm", "gemma-3-270m", "--yes", **env).err == "deleted gemma-3-270m (2 MB)\n"
    assert [p.name for p in folder.iterdir()] == ["mine.gguf"]
    again = gg("rm", "smollm2", "--yes", **env)
    assert again.code == 3
    assert "smollm2 is not on this machine" in again.err


def test_rm_leaves_what_pull_did_not_put_there(gg, folder):
    env = {"GGUF_RUNTIME_MODELS": str(folder)}
    entry = entries()["smollm2"]
    (folder / entry.file).rename(folder / "elsewhere.gguf")
    (folder / entry.file).symlink_to(folder / "elsewhere.gguf")
    for name, words in (
        ("mine", "was not put here by pull"),
        (str(folder / "mine.gguf"), "delete it yourself: rm '"),
        ("smollm2", "this link was not put here by pull"),
        ("ollama:llama3", "ollama rm llama3"),
        ("smolm2", "did you mean smollm2?"),
    ):
        done = gg("rm", name, "--yes", **env)
        assert done.code == 3
        assert words in done.err
    assert {p.name for p in folder.glob("*.gguf")} == {"mine.gguf", "elsewhere.gguf", entry.file}


@pytest.fixture
def person():
    """`Person`, ended with the test."""
    people: list[Person] = []

    def made(*words: str, **env: str) -> Person:
        people.append(Person(*words, **env))
        return people[-1]

    yield made
    for p in people:
        p.process.kill()
        p.process.communicate()


class Person:
    """Types at a pseudo-terminal once a question stands there."""

    def __init__(self, *words: str, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gguf_runtime", *words],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
            env=os.environ | env,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def waits_for(self, text: str) -> None:
        end = time.monotonic() + HANG_S
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            ready, _, _ = select.select([self.master], [], [], 1)
            if ready:
                try:
                    self.seen += os.read(self.master, 4096).decode()
                except OSError:
                    raise AssertionError(self.seen) from None

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ends(self) -> tuple[int, str]:
        out = self.process.communicate(timeout=HANG_S)[0].decode()
        code = self.process.returncode
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.seen += os.read(self.master, 4096).decode()
            except OSError:
                break
        os.close(self.master)
        return code, out


def test_rm_asks_and_no_is_the_default(folder, person):
    somebody = person("rm", "smollm2", GGUF_RUNTIME_MODELS=str(folder))
    somebody.waits_for("delete smollm2 (98 MB)? [y/N]")
    somebody.types("\n")
    assert somebody.ends() == (0, "")
    assert "nothing was deleted" in somebody.seen
    assert (folder / entries()["smollm2"].file).exists()
    somebody = person("rm", "smollm2", GGUF_RUNTIME_MODELS=str(folder))
    somebody.waits_for("[y/N]")
    somebody.types("y\n")
    assert somebody.ends() == (0, "")
    assert not (folder / entries()["smollm2"].file).exists()


def test_run_offers_a_model_of_the_hub_with_size_and_licence(own, shop, tmp_path, person):
    words = ("run", f"hf:{NAME}", "-p", "a", "-n", "2", "--raw")
    somebody = person(*words, **own)
    somebody.waits_for("ask the hub for it? [Y/n]")
    assert shop.requests == []  # nothing is asked before the person agrees
    somebody.types("\n")
    somebody.waits_for("fetch it now? [Y/n]")
    assert "tiny-Q4_K_M.gguf: 171 kB, licence apache-2.0" in somebody.seen
    assert round(SMALL.stat().st_size / 1000) == 171
    assert shop.sent == []
    somebody.types("y\n")
    code, out = somebody.ends()
    assert (code, bool(out)) == (0, True), somebody.seen
    assert list(cache(tmp_path).rglob("tiny-Q4_K_M.gguf"))


@pytest.mark.parametrize("name", ["smollm2", f"hf:{NAME}"])
def test_who_declines_gets_the_command(own, shop, tmp_path, name, person):
    somebody = person("run", name, "-p", "a", **own, GGUF_RUNTIME_MODELS=str(tmp_path / "none"))
    somebody.waits_for("[Y/n]")
    somebody.types("n\n")
    code, out = somebody.ends()
    assert (code, out) == (3, "")
    assert f"gguf-runtime pull {name}" in somebody.seen
    assert shop.requests == []


@pytest.mark.parametrize("name", ["smollm2", f"hf:{NAME}"])
def test_without_a_terminal_nothing_is_asked_and_the_command_is_given(call, shop, tmp_path, name):
    done = call("run", name, "-p", "a", GGUF_RUNTIME_MODELS=str(tmp_path / "none"))
    assert (done.code, done.out) == (3, "")
    assert f"{name} is not on this machine" in done.err
    assert f"gguf-runtime pull {name}" in done.err
    assert shop.requests == []


def test_every_command_that_takes_a_model_takes_every_kind_of_name(call, tmp_path):
    assert call("pull", f"hf:{NAME}").code == 0
    for words in (["inspect"], ["show"], ["tokenize", "--count"]):
        command, *options = words
        text = ["abc"] if command == "tokenize" else []
        done = call(command, f"hf:{NAME}", *text, *options)
        assert done.code == 0, done.err
    store = tmp_path / "store"
    blob = "sha256-" + "0" * 64
    (store / "blobs").mkdir(parents=True)
    (store / "blobs" / blob).write_bytes(SMALL.read_bytes())
    tag = store / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    tag.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "0" * 64}
    tag.write_text(json.dumps({"layers": [layer]}))
    done = call("show", "ollama:tiny", OLLAMA_MODELS=str(store))
    assert done.code == 0, done.err
    assert blob in done.out
    rows = json.loads(call("list", "--found", "--json", OLLAMA_MODELS=str(store)).out)["found"]
    assert {r["name"]: r["source"] for r in rows} == {
        f"hf:{NAME}:Q4_K_M": "hub cache",
        "ollama:tiny": "ollama",
    }
    ran = call("run", "ollama:tiny", "-p", "a", "-n", "2", "--raw", OLLAMA_MODELS=str(store))
    assert (ran.code, bool(ran.out)) == (0, True), ran.err


def test_odd_paths_are_taken_as_they_are(gg, tmp_path):
    folder = tmp_path / "Modèles de téléchargement — 模型"
    folder.mkdir()
    plain = folder / "no suffix at all"
    plain.write_bytes(SMALL.read_bytes())
    (folder / "link.gguf").symlink_to(plain)
    plain.chmod(0o444)
    folder.chmod(0o555)
    try:
        for path in (plain, folder / "link.gguf", folder):
            done = gg("inspect", str(path), "--json")
            assert done.code == 0, done.err
            assert json.loads(done.out)["architecture"] == "qwen3"
    finally:
        folder.chmod(0o755)
