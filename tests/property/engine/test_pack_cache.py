"""Packs in a file: the same bits, found again at once, and never believed when they are not whole."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime import MachineError, Model
from gguf_runtime.engine import pack_cache, pack_file, sizing
from quant import cpu
from tests.tiny import GEMMA3, QWEN3, SMALL, ids_of

IDS = ids_of(40)
HANG_S = 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An own place for packs; kernels are this machine's."""
    monkeypatch.setattr(pack_cache, "folder", lambda: tmp_path / "cache" / "packs")
    return tmp_path / "cache" / "packs"


def load(path=SMALL, **options):
    return Model(path, threads=2, pack_cache=True, **options)


def logits(model):
    return model.logits(IDS)


def plain(path=SMALL):
    with Model(path, threads=2) as m:
        return logits(m)


@pytest.mark.parametrize("path", [QWEN3, GEMMA3, SMALL], ids=lambda p: p.stem)
def test_packs_of_a_file_give_the_same_bits_and_are_found_again(folder, path):
    expected = plain(path)
    for made in (True, False):
        with load(path) as m:
            assert m.pack_file.made is made
            assert m.notices == []
            assert np.array_equal(logits(m), expected)
            packs = m.backend.stepper.loaded.packs
            assert not any(p.data.flags.writeable for p in packs.values())
            assert all(p.address % 4096 == 0 for p in packs.values())
    (only,) = folder.iterdir()
    assert only == m.pack_file.path
    assert only.stat().st_size == m.pack_file.size_bytes
    assert only.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert pack_cache.listed() == [(only, only.stat().st_size, path.name)]


def test_what_is_found_again_is_not_packed_again(folder, monkeypatch):
    load().close()

    def nobody(*args, **options):
        raise AssertionError("packed again")

    monkeypatch.setattr(pack_file, "fill", nobody)
    told = []
    with load(progress=lambda what, done, total: told.append(what)) as m:
        assert np.array_equal(logits(m), plain())
    assert "writing packs" not in told
    assert "checking packs" not in told


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "a flipped bit of the data": lambda p: flip(p, -5000),
    "a flipped bit of the header": lambda p: flip(p, 100),
    "a flipped bit of the magic": lambda p: flip(p, 3),
    "an absurd length of the header": lambda p: flip(p, 55),
    "a missing end": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "more at the end": lambda p: p.write_bytes(p.read_bytes() + b"\0"),
    "an empty file": lambda p: p.write_bytes(b""),
    "garbage": lambda p: p.write_bytes(os.urandom(100_000)),
    "the packs of another model": lambda p: shutil.copy(other(p), p),
}


def other(path):
    with load(GEMMA3) as m:
        assert m.pack_file.path != path
        return m.pack_file.path


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_whole_is_made_anew(folder, damage):
    with load() as m:
        path = m.pack_file.path
    damage(path)
    with load() as m:
        assert m.pack_file.made
        assert [n.code for n in m.notices] == ["packs-rebuilt"]
        assert str(path) in m.notices[0].message
        assert np.array_equal(logits(m), plain())
    with load() as m:
        assert not m.pack_file.made
        assert m.notices == []


def test_a_copy_with_another_time_is_hashed_once_and_believed(folder):
    with load() as m:
        path = m.pack_file.path
    os.utime(path)
    for expected in (True, False):
        told = []
        with load(progress=lambda what, done, total, told=told: told.append(what)) as m:
            assert not m.pack_file.made
        assert ("checking packs" in told) is expected


def test_a_model_file_that_was_replaced_is_packed_again(folder, tmp_path):
    path = Path(shutil.copy(SMALL, tmp_path / "m.gguf"))
    load(path).close()
    os.utime(path, (1, 1))
    with load(path) as m:
        assert m.pack_file.made
        assert "has changed" in m.notices[0].message


@pytest.mark.skipif(os.name != "posix", reason="rights of others are POSIX")
def test_a_folder_that_is_open_to_others_is_not_used(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with load() as m:
        assert m.pack_file is None
        assert not m.memory.mapped
        (notice,) = m.notices
        assert notice.code == "pack-cache"
        assert f"chmod 700 {folder}" in notice.message
        assert np.array_equal(logits(m), plain())
    assert list(folder.iterdir()) == []


def test_a_full_disk_leaves_the_weights_in_memory(folder, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(pack_file.shutil, "disk_usage", lambda p: usage(10**9, 10**9, 1000))
    with load() as m:
        assert m.pack_file is None
        assert "MB are needed" in m.notices[0].message
        assert np.array_equal(logits(m), plain())
    assert list(folder.iterdir()) == []


def test_writing_that_is_interrupted_leaves_nothing(folder, monkeypatch):
    calls = []

    def fill(parts, pool):
        calls.append(parts)
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(pack_file, "fill", fill)
        with pytest.raises(KeyboardInterrupt):
            load()
    assert calls
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_left_is_swept(folder):
    folder.mkdir(parents=True, mode=0o700)
    old, fresh = (folder / f"a.packs.{n}.tmp" for n in (1, 2))
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    load().close()
    assert not old.exists()
    assert fresh.exists()


PROBE = """
import sys
from gguf_runtime import Model
from tests.tiny import ids_of
with Model(sys.argv[1], threads=1, pack_cache=True) as m:
    print(m.logits(ids_of(40)).tobytes().hex())
"""


def test_two_processes_at_once_both_have_good_packs(tmp_path):
    root = Path(__file__).parents[3]
    base = tmp_path / "base"
    base.mkdir(mode=0o700)
    for kernels in Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").glob(
        "gguf-runtime/kernels-*"
    ):
        shutil.copytree(kernels, base / kernels.name)
    env = os.environ | {"GGUF_RUNTIME_CACHE": str(base), "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", PROBE, str(SMALL)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) for _ in range(2)]
    outs = [p.communicate(timeout=HANG_S)[0].strip() for p in both]

    assert outs == [plain().tobytes().hex()] * 2
    assert [p.suffix for p in (base / "packs").iterdir()] == [".packs"]


def test_a_model_beyond_the_memory_runs_from_its_file_with_a_notice(folder, monkeypatch):
    need = Model.plan(SMALL, 256, threads=2)
    room = need.total - need.weights // 2 - need.program

    class Memory:
        available_bytes = room + sizing.RESERVE

    monkeypatch.setattr(cpu, "memory", Memory)
    with pytest.raises(MachineError, match="does not fit into memory"):
        Model.plan(SMALL, 256, threads=2)
    plan = Model.plan(SMALL, 256, threads=2, pack_cache=True)
    assert plan.fits
    assert plan.slow
    with load(context=256) as m:
        assert [n.code for n in m.notices] == ["weights-beyond-memory"]
        assert "slowly" in m.notices[0].message
        got = logits(m)
    monkeypatch.undo()
    assert np.array_equal(got, plain())
