"""Kernels in a file: what was written comes back, and what is not ours or not whole is refused."""

import os
import re
import struct

import pytest

from quant import QuantError, bundle, cpu, jit, objects, packing_kernels, targets
from quant.simd.isa import TARGETS

SPECS = [packing_kernels.pack_strip.spec(name) for name in ("Q4_0", "Q8_0")]
HERE = targets.here()

pytestmark = pytest.mark.skipif(HERE is None, reason="no name for this kind of machine")


@pytest.fixture(scope="module")
def found():
    return bundle.collect(targets.machine(f"{HERE}-{cpu.isa()}"), SPECS)


@pytest.fixture
def path(tmp_path, found):
    where = tmp_path / "kernels.bin"
    bundle.write(str(where), HERE, found)
    return where


@pytest.fixture
def store(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    return objects.Store(str(tmp_path / "cache"), lambda code, message: None)


def test_what_was_written_is_installed_under_our_own_keys(path, found, store):
    read = bundle.read(str(path))

    assert dict(read.objects) == found
    assert bundle.install(read, store) == {cpu.isa(): len(SPECS)}
    for spec in SPECS:
        name, key = jit.file_name(spec, cpu.isa()), jit.object_key(spec, cpu.isa())
        assert store.get(name, key) == found[spec, cpu.isa()]


def test_writing_says_the_digest_of_the_file_and_leaves_nothing_else(tmp_path, found):
    import hashlib

    where = tmp_path / "k.bin"
    digest = bundle.write(str(where), HERE, found)

    assert (
        digest == hashlib.sha256(where.read_bytes()).hexdigest() == bundle.read(str(where)).digest
    )
    assert os.listdir(tmp_path) == ["k.bin"]


@pytest.mark.parametrize("at", [0, 20, 50, 60, 500, -1])
def test_a_flipped_bit_anywhere_is_found(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(QuantError, match=r"damaged|no compiled kernels"):
        bundle.read(str(path))


@pytest.mark.parametrize("data", [b"", b"garbage" * 99, bundle.MAGIC, bundle.MAGIC + bytes(40)])
def test_what_is_no_such_file_is_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(QuantError, match=r"damaged|no compiled kernels"):
        bundle.read(str(path))


def test_a_file_that_was_cut_is_refused(path):
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(QuantError, match="damaged"):
        bundle.read(str(path))


@pytest.mark.skipif(os.name != "posix", reason="rights of others are POSIX")
def test_code_that_others_could_have_written_is_refused(path, monkeypatch):
    path.chmod(0o666)
    with pytest.raises(QuantError, match="others may write") as e:
        bundle.read(str(path))
    assert e.value.hint == f"chmod go-w {path}"
    path.chmod(0o644)
    monkeypatch.setattr(bundle.os, "geteuid", lambda: path.stat().st_uid + 7)
    if path.stat().st_uid == 0:
        os.chown(path, 12345, 12345)
    with pytest.raises(QuantError, match="belongs to somebody else"):
        bundle.read(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(QuantError, match="is no file"):
        bundle.read(str(tmp_path / "pipe"))


def test_kernels_of_another_machine_name_the_command_for_this_one(path, store):
    other = next(name for name in targets.systems() if name != HERE)
    with pytest.raises(QuantError, match="another machine's") as e:
        bundle.install(bundle.read(str(path))._replace(system=other), store)
    assert f"--target {HERE}" in e.value.hint


def test_kernels_of_other_sources_are_refused(path, store):
    read = bundle.read(str(path))
    changed = dict.fromkeys(read.sources, "0" * 64)
    with pytest.raises(QuantError, match="other sources"):
        bundle.install(read._replace(sources=changed), store)
    (_, isa), data = next(iter(read.objects.items()))
    stranger = jit.Spec("os", "system", ("x",))
    key = (stranger, isa)
    with pytest.raises(QuantError, match="other sources"):
        bundle.install(read._replace(objects={key: data}, sources={key: "0"}), store)


def test_an_object_that_calls_outside_or_has_another_name_is_refused(path, store):
    read = bundle.read(str(path))
    one, two = (read.objects[spec, cpu.isa()] for spec in SPECS)
    swapped = {(SPECS[0], cpu.isa()): two, (SPECS[1], cpu.isa()): one}
    with pytest.raises(QuantError, match="is not what it says"):
        bundle.install(read._replace(objects=swapped), store)


def test_instruction_sets_that_this_cpu_lacks_are_left_out(path, store):
    read = bundle.read(str(path))
    foreign = {(spec, "unheard"): data for (spec, _), data in read.objects.items()}
    assert bundle.install(read._replace(objects={**foreign, **read.objects}), store) == {
        cpu.isa(): len(SPECS)
    }
    with pytest.raises(QuantError, match="can run none"):
        bundle.install(read._replace(objects=foreign), store)


def test_every_instruction_set_belongs_to_a_system_and_has_a_name():
    for isa, arch in TARGETS:
        named = [name for name in targets.systems() if targets.machine(name).arch == arch]
        assert named
        for name in named:
            assert isa in targets.machine(name).isas
            assert targets.machine(f"{name}-{isa}").isas == (isa,)


@pytest.mark.parametrize("name", ["", "linux", "linux-arm64-avx2", "amiga-68000", "linux-x86_64-"])
def test_a_name_that_is_none_lists_those_that_are(name):
    with pytest.raises(QuantError) as e:
        targets.machine(name)
    assert all(system in e.value.expected for system in targets.systems())


def test_kernels_for_another_architecture_are_its_objects():
    name = "linux-arm64-generic" if HERE != "linux-arm64" else "linux-x86_64-generic"
    (data,) = bundle.collect(targets.machine(name), SPECS[:1]).values()

    assert data[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", data, 18)[0] == (183 if "arm64" in name else 62)
    assert re.fullmatch(r"\w+", SPECS[0].symbol)
