"""`batch` killed at any moment: what was saved stays, and going on gives what an uninterrupted run gives."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gguf_runtime.hub.places import models_dir
from tests.tiny import with_template

HANG_S = 60


@pytest.fixture
def job(tmp_path):
    """(folder, function that starts `batch` of 60 lines with more options)."""
    model = with_template(tmp_path / "tiny.gguf")
    rows = [{"prompt": f"line {k % 13} and {k}", "id": k} for k in range(60)]
    rows[17] = {"prompt": ""}
    rows[40] = {"no": "prompt"}
    text = "".join(json.dumps(r) + "\n" for r in rows)
    (tmp_path / "in.jsonl").write_text(text, encoding="utf-8")

    def start(out: str, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "gguf_runtime", "batch", str(model), "in.jsonl"),
                *("-o", out, "-n", "40", "--seed", "11", *more),
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GGUF_RUNTIME_MODELS": str(models_dir())},
        )

    return tmp_path, start


def finish(process: subprocess.Popen[str]) -> str:
    err = process.communicate(timeout=HANG_S)[1]
    assert process.returncode == 6, err  # two lines are wrong
    return err


def saved(path: Path) -> list[bytes]:
    """The whole lines of a file."""
    data = path.read_bytes() if path.exists() else b""
    return [l for l in data.splitlines(keepends=True) if l.endswith(b"\n")]


def timeless(path: Path) -> list[str]:
    rows = sorted(map(json.loads, saved(path)), key=lambda r: r["line"])
    return [json.dumps({k: v for k, v in r.items() if k != "timings"}) for r in rows]


def kills(job, moments: int, seed: int) -> None:
    folder, start = job
    finish(start("whole.jsonl"))
    began = time.monotonic()
    finish(start("whole.jsonl", "--overwrite"))
    longest = time.monotonic() - began
    whole, rng = timeless(folder / "whole.jsonl"), random.Random(seed)
    assert len(whole) == 60
    hits = 0
    for k in range(moments):
        out = folder / f"{k}.jsonl"
        while True:
            before = saved(out)
            process = start(out.name)
            try:
                process.wait(rng.uniform(0, longest))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate(timeout=HANG_S)
            after = saved(out)
            assert after[: len(before)] == before
            if process.returncode != -signal.SIGKILL:
                break
            hits += 0 < len(after) < 60
            if rng.random() < 0.5:
                finish(start(out.name))
                break
        assert saved(out)[: len(after)] == after
        assert timeless(out) == whole
        assert out.read_bytes().count(b"\n") == 60
    assert hits or moments < 20


def test_killed_batches_go_on_to_the_bytes_of_one_that_was_not_killed(job):
    kills(job, 3, seed=1)


@pytest.mark.slow
def test_fifty_killed_batches_go_on_to_the_bytes_of_one_that_was_not_killed(job):
    kills(job, 50, seed=2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_whole_lines_and_the_way_to_go_on(job, number, code):
    folder, start = job
    finish(start("whole.jsonl"))
    process = start("out.jsonl", "--parallel", "1")
    deadline = time.monotonic() + HANG_S
    while not saved(folder / "out.jsonl") and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)
    err = process.communicate(timeout=HANG_S)[1]

    assert process.returncode == code
    data = (folder / "out.jsonl").read_bytes()
    assert data.endswith(b"\n")
    n = data.count(b"\n")
    assert f"stopped: {n} line{'s' * (n != 1)} in out.jsonl; the same command goes on" in err
    finish(start("out.jsonl"))
    assert timeless(folder / "out.jsonl") == timeless(folder / "whole.jsonl")


def test_two_batches_do_not_write_to_one_file(job):
    folder, start = job
    first = start("out.jsonl", "--parallel", "1")
    while not saved(folder / "out.jsonl"):
        assert first.poll() is None
        time.sleep(0.005)
    first.send_signal(signal.SIGSTOP)
    try:
        second = start("out.jsonl")
        err = second.communicate(timeout=HANG_S)[1]
    finally:
        first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert err.startswith("error: out.jsonl: another batch writes to it\n")
    finish(first)
    assert len(saved(folder / "out.jsonl")) == 60


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_full_disk_keeps_all_that_was_done_and_says_how_to_go_on(job):
    """A limit on the size of files stands for the full disk: a write gives part, then an error."""
    folder, start = job
    finish(start("whole.jsonl"))
    size = (folder / "whole.jsonl").stat().st_size
    wrapper = (
        "import os, resource, runpy, signal, sys;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, -1));"
        "sys.argv[0] = 'gg'; runpy.run_module('gguf_runtime', run_name='__main__')"
    )
    process = start("out.jsonl")
    args = [sys.executable, "-c", wrapper, *process.args[3:]]  # type: ignore[index]
    process.kill()
    process.communicate()
    (folder / "out.jsonl").unlink(missing_ok=True)
    done = subprocess.run(
        args,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )

    n = len(saved(folder / "out.jsonl"))
    assert done.returncode == 7, done.stderr
    assert "error: out.jsonl cannot be written: file too large" in done.stderr
    assert f"{n} lines are saved; make room, then the same command goes on" in done.stderr
    assert (folder / "out.jsonl").read_bytes().endswith(b"\n")
    assert 0 < n < 60
    finish(start("out.jsonl"))
    assert timeless(folder / "out.jsonl") == timeless(folder / "whole.jsonl")
