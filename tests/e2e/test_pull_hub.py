"""`pull hf:…`, and models of the hub by name, against a hub on this machine (rows P1, P2, P3)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quant.objects import default_base
from tests.loopback import Repo, Served, hub, serving
from tests.tiny import SMALL

MODEL = SMALL.read_bytes()
NAME = "org/Tiny-GGUF"
HANG_S = 300


def filler(seed: int, n: int = 100_000) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(n)


@pytest.fixture
def repos():
    files = {
        "README.md": b"# Tiny",
        "tiny-Q4_K_M.gguf": MODEL,
        "tiny-Q8_0.gguf": filler(1),
        "tiny-BF16-00001-of-00002.gguf": filler(2, 50_000),
        "tiny-BF16-00002-of-00002.gguf": filler(3, 60_000),
        "mmproj-tiny-F16.gguf": filler(4),
        "sub/other-IQ3_XS.gguf": filler(5),
    }
    return {
        NAME: Repo(files),
        "org/Several": Repo({"a.Q5_0.gguf": filler(6), "b.Q8_0.gguf": filler(7)}),
        "org/Half": Repo({"x-Q4_K_M-00001-of-00003.gguf": filler(8)}),
        "org/None": Repo({"model.safetensors": b"x"}),
        "org/Gated": Repo({"g-Q4_K_M.gguf": MODEL}, gated=True),
        "org/Private": Repo({"p-Q4_K_M.gguf": MODEL}, token="hf_mine"),
        "org/Wrong": Repo({"w-Q4_K_M.gguf": MODEL}, claims={"w-Q4_K_M.gguf": "0" * 64}),
    }


@pytest.fixture
def shop(repos):
    served = Served()
    served.seen = hub(served, repos)  # type: ignore[attr-defined]
    with serving(served):
        yield served


@pytest.fixture
def call(gg, shop, tmp_path):
    """The program with a hub of its own."""
    own = {
        "HF_ENDPOINT": shop.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": "",
        "HF_HUB_OFFLINE": "",
        "NO_PROXY": "*",
    }
    return lambda *words, **more: gg(*words, **(own | more))


def cache(tmp_path: Path, repo: str = NAME) -> Path:
    return tmp_path / "hf" / "hub" / ("models--" + repo.replace("/", "--"))


def test_the_default_is_q4_k_m_and_lands_in_the_hubs_own_cache(call, shop, repos, tmp_path):
    done = call("pull", f"hf:{NAME}")
    assert done.code == 0, done.err
    path = Path(done.out.rstrip("\n"))
    assert path == cache(tmp_path) / "snapshots" / repos[NAME].commit / "tiny-Q4_K_M.gguf"
    assert path.read_bytes() == MODEL
    assert "tiny-Q4_K_M.gguf, " in done.err
    assert "licence apache-2.0" in done.err
    assert (cache(tmp_path) / "refs" / "main").read_text() == repos[NAME].commit
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    where = cache(tmp_path).parent
    assert try_to_load_from_cache(NAME, "tiny-Q4_K_M.gguf", cache_dir=where) == str(path)
    assert not scan_cache_dir(where).warnings
    assert len(shop.sent) == 1


def test_a_pulled_model_runs_by_its_name_without_a_request(call, shop):
    assert call("pull", f"hf:{NAME}").code == 0
    before = len(shop.requests)
    done = call("run", f"hf:{NAME}", "-p", "a", "-n", "2", "--raw", "--offline")
    assert (done.code, bool(done.out)) == (0, True), done.err
    for name in (f"hf:{NAME}:q4_k_m", f"hf:{NAME}:tiny-Q4_K_M", f"HF:{NAME}"):
        facts = json.loads(call("inspect", name, "--json").out)
        assert facts["parts"] == ["tiny-Q4_K_M.gguf"]
    assert len(shop.requests) == before


@pytest.mark.parametrize(
    ("want", "file"),
    [
        (":Q8_0", "tiny-Q8_0.gguf"),
        (":q8_0", "tiny-Q8_0.gguf"),
        (":sub/other-IQ3_XS.gguf", "sub/other-IQ3_XS.gguf"),
        (":other-IQ3_XS.gguf", "sub/other-IQ3_XS.gguf"),
        (":tiny-BF16", "tiny-BF16-00001-of-00002.gguf"),
    ],
)
def test_a_quantization_or_a_file_is_named_after_the_colon(call, tmp_path, repos, want, file):
    done = call("pull", f"hf:{NAME}{want}")
    assert done.code == 0, done.err
    assert done.out.rstrip("\n").endswith("/" + file)
    assert Path(done.out.rstrip("\n")).read_bytes() == repos[NAME].files[file]


def test_all_parts_of_a_split_model_come_together(call, shop, repos):
    done = call("pull", f"hf:{NAME}:BF16")
    assert done.code == 0, done.err
    assert "in 2 parts" in done.err
    first = Path(done.out.rstrip("\n"))
    parts = [f"tiny-BF16-{i:05}-of-00002.gguf" for i in (1, 2)]
    assert [(first.parent / p).read_bytes() for p in parts] == [repos[NAME].files[p] for p in parts]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        (
            "hf:org/Several",
            3,
            ["no Q4_K_M here", "Q5_0 (100 kB), Q8_0 (100 kB)", "hf:org/Several:"],
        ),
        (f"hf:{NAME}:Q4_K_S", 3, ['no model "Q4_K_S" here', f"did you mean hf:{NAME}:Q4_K_M?"]),
        ("hf:org/None", 3, ["no GGUF model in this repository", "-GGUF"]),
        ("hf:org/Half", 5, ["2 parts of this model are not in", "expected 3", "-00002-of-00003"]),
        ("hf:org/Gated", 5, ["gated", "agree at", "HF_TOKEN=…"]),
        ("hf:org/Private", 5, ["no such repository, or it is private", "HF_TOKEN=…"]),
        ("hf:org/Nowhere", 5, ["no such repository", "look at http"]),
        ("hf:nonsense", 3, ["names nothing on the hub", "hf:ORG/NAME"]),
        ("hf:a/../../etc", 3, ["names nothing on the hub"]),
        ("hf:org/Wrong", 5, ["is not the file that the hub describes", "kept as", "sha256"]),
    ],
)
def test_what_cannot_be_pulled_says_why_and_what_to_do(call, name, code, words):
    done = call("pull", name)
    assert done.code == code
    assert done.out == ""
    for word in words:
        assert word in done.err
    errors = done.err[done.err.index("error: ") :]
    assert 2 <= errors.count("\n") <= 3
    assert "Traceback" not in errors


def test_a_token_opens_a_private_repository_and_is_not_shown_to_the_cdn(call, shop):
    done = call("pull", "hf:org/Private", HF_TOKEN="hf_mine")
    assert done.code == 0, done.err
    assert shop.seen == [""]


def test_a_wrong_token_is_named_as_such(call):
    done = call("pull", f"hf:{NAME}", HF_TOKEN="wrong")
    assert done.code == 5
    assert "does not accept this token" in done.err


def test_a_hub_that_is_not_there_is_a_network_error(call):
    done = call("pull", f"hf:{NAME}", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.code == 5
    assert "http://127.0.0.1:9 cannot be reached" in done.err
    assert "HTTPS_PROXY" in done.err


@pytest.mark.parametrize("how", ["option", "variable"])
def test_offline_is_kept_and_what_is_there_is_found(call, shop, how):
    words, more = (["--offline"], {}) if how == "option" else ([], {"HF_HUB_OFFLINE": "1"})
    done = call("pull", f"hf:{NAME}", *words, **more)
    assert done.code == 5
    assert "the network is switched off" in done.err
    assert shop.requests == []
    assert call("pull", f"hf:{NAME}").code == 0
    before = len(shop.requests)
    assert call("pull", f"hf:{NAME}", *words, **more).code == 0
    assert len(shop.requests) == before


def test_a_line_that_drops_goes_on_and_a_later_pull_too(call, shop, tmp_path, repos):
    shop.cut_after, shop.cuts = 30_000, 2
    assert call("pull", f"hf:{NAME}:Q8_0").code == 0
    starts = [s.start for s in shop.sent]
    assert len(starts) == 3
    assert starts[0] < starts[1] < starts[2]

    size = len(repos[NAME].files["tiny-BF16-00001-of-00002.gguf"])
    partial = cache(tmp_path) / "blobs"
    (blob,) = {s["lfs"]["sha256"] for s in siblings(repos) if s["size"] == size}
    (partial / f"{blob}.incomplete").write_bytes(
        repos[NAME].files["tiny-BF16-00001-of-00002.gguf"][:20_000]
    )
    shop.cut_after, before = None, len(shop.sent)
    assert call("pull", f"hf:{NAME}:BF16").code == 0
    assert [s.start for s in shop.sent[before:]] == [20_000, 0]


def siblings(repos):
    from tests.loopback import _info

    return [s for s in _info(NAME, repos[NAME])["siblings"] if "lfs" in s]


def test_a_wrong_digest_is_kept_apart_and_fetched_anew(call, tmp_path, repos, shop):
    repo = repos["org/Wrong"]
    assert call("pull", "hf:org/Wrong").code == 5
    (bad,) = cache(tmp_path, "org/Wrong").glob("blobs/*.bad")
    assert bad.read_bytes() == MODEL
    repo.claims.clear()
    assert call("pull", "hf:org/Wrong").code == 0


def test_a_damaged_file_in_the_cache_is_fetched_again(call, shop):
    path = Path(call("pull", f"hf:{NAME}").out.rstrip("\n"))
    blob = path.resolve()
    blob.write_bytes(MODEL[:-1] + bytes([MODEL[-1] ^ 1]))
    assert call("pull", f"hf:{NAME}").code == 0
    assert path.read_bytes() == MODEL
    assert len(shop.sent) == 2


def test_a_full_disk_is_found_before_the_first_byte(call, shop, repos, monkeypatch, tmp_path):
    from gguf_runtime.errors import MachineError
    from gguf_runtime.hub import hubcache, hubpull, stage
    from gguf_runtime.hub.hubapi import Offer, RemoteFile
    from gguf_runtime.hub.quants import Choice

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    name = hubcache.parse(f"hf:{NAME}")
    file = RemoteFile("x.gguf", 1 << 60, "0" * 64, "0" * 64)
    offer = Offer(name, "0" * 40, Choice("", ("x.gguf",), 1 << 60), (file,), "mit")
    with pytest.raises(MachineError, match="not enough free space") as e:
        hubpull.pull(name, offer)
    assert stage.size((1 << 60) + stage.SPARE_BYTES) in (e.value.expected or "")
    assert "HF_HOME" in (e.value.hint or "")
    assert shop.requests == []


def started(call_env: dict[str, str], name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gguf_runtime", "pull", name],
        env=os.environ | call_env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def own(shop, tmp_path):
    return {
        "HF_ENDPOINT": shop.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": "",
        "HF_HUB_OFFLINE": "",
        "HOME": str(tmp_path),
        "GGUF_RUNTIME_CACHE": default_base() or "",  # compiled kernels are no part of a home
        "NO_PROXY": "*",
    }


def test_two_pulls_at_once_fetch_once(own, shop):
    shop.pause_s = 0.01
    both = [started(own, f"hf:{NAME}:Q8_0") for _ in range(2)]
    outs = [p.communicate(timeout=HANG_S) for p in both]
    assert [p.returncode for p in both] == [0, 0], outs
    assert outs[0][0] == outs[1][0]
    assert len(shop.sent) == 1


def killed_again_and_again(own, shop, repos, tmp_path, kills: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    print("seed", seed)
    shop.pause_s = 0.005
    blobs = cache(tmp_path) / "blobs"
    parts = [f"tiny-BF16-{i:05}-of-00002.gguf" for i in (1, 2)]
    for _ in range(kills):
        before = len(shop.sent)
        held = [p.stat().st_size for p in blobs.glob("*.incomplete")]
        process = started(own, f"hf:{NAME}:BF16")
        try:
            process.communicate(timeout=chance.uniform(0.3, 2.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for blob in blobs.glob("*[0-9a-f]"):
            if not blob.suffix:
                assert blob.read_bytes() in repos[NAME].files.values()
        if len(shop.sent) > before and held:
            assert shop.sent[before].start >= max(held)
        if process.returncode == 0:
            done = [p for p in cache(tmp_path).rglob("*.gguf") if p.name in parts]
            assert len(done) == 2
            for p in done:
                p.resolve().unlink()
                p.unlink()
    process = started(own, f"hf:{NAME}:BF16")
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    first = Path(out.decode().rstrip("\n"))
    assert [(first.parent / p).read_bytes() for p in parts] == [repos[NAME].files[p] for p in parts]
    assert not list(blobs.glob("*.incomplete"))


def test_killed_pulls_leave_no_half_file_and_lose_nothing(own, shop, repos, tmp_path):
    killed_again_and_again(own, shop, repos, tmp_path, 4)


@pytest.mark.slow
def test_fifty_killed_pulls_leave_no_half_file_and_lose_nothing(own, shop, repos, tmp_path):
    killed_again_and_again(own, shop, repos, tmp_path, 50)


def test_rm_deletes_what_pull_fetched_and_nothing_else(call, tmp_path, shop):
    kept = Path(call("pull", f"hf:{NAME}:Q8_0").out.rstrip("\n"))
    path = Path(call("pull", f"hf:{NAME}").out.rstrip("\n"))
    blob = path.resolve()
    refused = call("rm", f"hf:{NAME}")
    assert refused.code == 2
    assert f"gguf-runtime rm hf:{NAME} --yes" in refused.err
    assert path.exists()
    assert call("rm", f"hf:{NAME}", "--yes").code == 0
    assert not path.is_symlink()
    assert not blob.exists()
    assert kept.exists()
    assert call("rm", f"hf:{NAME}:Q8_0", "--yes").code == 0
    assert not cache(tmp_path).exists()
    assert call("rm", f"hf:{NAME}:Q8_0", "--yes").code == 3


def test_rm_leaves_what_another_program_put_into_the_cache(call, tmp_path):
    path = Path(call("pull", f"hf:{NAME}").out.rstrip("\n"))
    (cache(tmp_path) / ".gguf-runtime.json").unlink()
    done = call("rm", f"hf:{NAME}", "--yes")
    assert done.code == 3
    assert "put into the hub's cache by another program" in done.err
    assert path.exists()


def test_list_found_shows_the_cache_with_names_that_run(call):
    call("pull", f"hf:{NAME}")
    call("pull", f"hf:{NAME}:BF16")
    done = call("list", "--found")
    assert f"hf:{NAME}:Q4_K_M" in done.out
    rows = json.loads(call("list", "--found", "--json").out)["found"]
    assert [r["name"] for r in rows] == [f"hf:{NAME}:BF16", f"hf:{NAME}:Q4_K_M"]
    assert [r["size_bytes"] for r in rows] == [110_008, len(MODEL)]
    for r in rows:
        assert call("rm", r["name"], "--yes").code == 0
