"""`quant.jit`: what is compiled once is found again, what is damaged is not run, what dies is survived."""

import ctypes
import importlib
import os
import stat
import subprocess
import sys

import pytest

import quant.build
from quant import QuantError, cpu, jit, objects, sources

MODULE = """
import os, signal
from quant.jit import kernel
from quant.simd import v

@kernel
def add(k):
    def body(args: int, task: int, thread: int) -> None:
        v.st_i64(args, v.ld_i64(args) + k * task + thread)
    return body

@kernel(check="check_times")
def times(k):
    def body(args: int, task: int, thread: int) -> None:
        v.st_i64(args, task * k)
    return body

def check_times(run, isa, k):
    if k == 13:
        return "lane 4 is off by one"
    if k == 14:
        raise ValueError("the check itself is broken")

@kernel(check="check_dies")
def dies(k):
    def body(args: int, task: int, thread: int) -> None:
        v.st_i64(args, k)
    return body

def check_dies(run, isa, k):
    if isa != "generic":
        os.kill(os.getpid(), signal.SIGILL if k == 1 else signal.SIGKILL)

@kernel
def wrong(k):
    def body(args: int, task: int, thread: int) -> None:
        v.no_such_word(args)
    return body
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch, request):
    """A fresh module of kernels, a fresh cache folder, nothing loaded."""
    name = f"kernels_of_{abs(hash(request.node.name)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("GGUF_RUNTIME_CACHE", str(tmp_path / "cache"))
    forget(monkeypatch)
    return importlib.import_module(name)


def forget(monkeypatch):
    """As in a new process: nothing loaded, nothing in memory."""
    monkeypatch.setattr(jit, "_loaded", {})
    monkeypatch.setattr(jit, "_lowered", {})
    monkeypatch.setattr(jit, "_stores", {})


@pytest.fixture
def quick(monkeypatch):
    """Builds `add` straight from LLVM text, in this process: for tests of the cache alone."""
    import llvmlite.binding as llvm

    def build(specs, isa, publish, progress=None):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            reloc="pic", codemodel="small"
        )
        for n, spec in enumerate(specs, 1):
            text = f"""define void @{spec.symbol}(i64 %a, i64 %task, i64 %thread) {{
                %p = inttoptr i64 %a to ptr
                %x = load i64, ptr %p
                %y = mul i64 %task, {spec.params[0]}
                %z = add i64 %x, %y
                store i64 %z, ptr %p
                ret void
            }}"""
            publish(spec, machine.emit_object(llvm.parse_assembly(text)))
            if progress is not None:
                progress(n, len(specs), spec.symbol)

    monkeypatch.setattr(quant.build, "build", build)


def call(address, value, task, thread):
    word = ctypes.c_int64(value)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)(ctypes.addressof(word), task, thread)
    return word.value


class Log(list):
    """Collects notices or progress."""

    def __call__(self, *args):
        self.append(args)


def cache_files(tmp_path):
    return sorted((tmp_path / "cache").glob("kernels-*/*.o"))


def test_a_kernel_compiles_once_and_runs(kernels, monkeypatch, tmp_path):
    specs = [kernels.add.spec(3), kernels.add.spec(-1), kernels.add.spec(3)]
    first, second = Log(), Log()

    found = jit.load(specs, progress=first)
    forget(monkeypatch)
    again = jit.load(specs, progress=second)

    assert call(found[specs[0]], 100, 7, 5) == 100 + 3 * 7 + 5
    assert call(again[specs[1]], 100, 7, 5) == 100 - 7 + 5
    assert [p[:2] for p in first] == [(0, 2), (1, 2), (2, 2)]
    assert second == []
    assert found.isa == cpu.isa()
    assert len(cache_files(tmp_path)) == 2


def test_a_quant_folder_in_the_current_directory_is_not_what_compiles(
    kernels, monkeypatch, tmp_path
):
    other = tmp_path / "elsewhere" / "quant"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(other.parent)
    spec = kernels.add.spec(21)

    found = jit.load([spec], fallback=False)

    assert call(found[spec], 1, 2, 0) == 43


def test_symbols_are_c_names_and_distinct(kernels):
    specs = [kernels.add.spec(p) for p in ("Q4_K", "q4.k", "q4_k", -1, 1)]

    symbols = [s.symbol for s in specs]

    assert len(set(symbols)) == len(symbols)
    assert all(s.isidentifier() and s.isascii() for s in symbols)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "pipe"])
def test_a_damaged_object_is_rebuilt(kernels, quick, monkeypatch, tmp_path, damage):
    spec = kernels.add.spec(5)
    jit.load([spec])
    (file,) = cache_files(tmp_path)
    good = file.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 1
    other = objects.Store(None, Log())
    other.folder = str(file.parent)
    texts = {"cut": good[:-7], "flip": bytes(bad), "empty": b""}
    if damage == "foreign":  # whole, but for another key
        body = bytes(32) + good[80:]
        other._write(str(file), body)
    elif damage == "pipe":  # reading it would wait for a writer
        file.unlink()
        os.mkfifo(file)
    else:
        file.write_bytes(texts[damage])
    forget(monkeypatch)
    progress = Log()

    found = jit.load([spec], progress=progress)

    assert progress
    assert file.read_bytes() == good
    assert call(found[spec], 1, 1, 0) == 6


def test_an_edited_source_is_compiled_again(kernels, quick, monkeypatch, tmp_path):
    spec = kernels.add.spec(2)
    jit.load([spec])
    path = kernels.__file__
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("k * task + thread", "k * task - thread"))
    forget(monkeypatch)
    sources.forget()

    jit.load([spec])

    assert len(cache_files(tmp_path)) == 2


def test_the_key_covers_parameters_and_isa(kernels):
    spec = kernels.add.spec(2)
    keys = {
        jit.object_key(spec, "generic"),
        jit.object_key(spec, "avx2"),
        jit.object_key(spec._replace(params=(3,)), "generic"),
    }

    assert len(keys) == 3


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("how", ["open", "link", "file"])
def test_a_folder_that_others_could_write_to_is_not_used(
    kernels, quick, monkeypatch, tmp_path, how
):
    folder = tmp_path / "cache" / os.path.basename(objects.Store("/x", Log()).folder)
    folder.parent.mkdir()
    if how == "open":
        folder.mkdir()
        folder.chmod(0o770)
    elif how == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_text("")
    notices = Log()
    specs = [kernels.add.spec(1), kernels.add.spec(2)]

    found = jit.load(specs, notice=notices)

    assert call(found[specs[1]], 0, 4, 0) == 8
    assert [code for code, _ in notices] == ["kernel-cache"]
    assert not list((tmp_path / "elsewhere").glob("*")) if how == "link" else True


def test_without_a_home_objects_stay_in_memory(kernels, quick, monkeypatch):
    monkeypatch.setattr(objects, "default_base", lambda: None)
    notices, progress = Log(), Log()
    spec = kernels.add.spec(1)

    jit.load([spec], notice=notices)
    monkeypatch.setattr(jit, "_loaded", {})
    jit.load([spec], notice=notices, progress=progress)

    assert len(notices) == 1
    assert "in memory only" in notices[0][1]
    assert progress == []


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_cache_files_are_private(kernels, quick, tmp_path):
    jit.load([kernels.add.spec(1)])

    (file,) = cache_files(tmp_path)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_two_processes_at_once_both_get_good_kernels(kernels, tmp_path):
    code = (
        f"import {kernels.__name__} as m; from quant import jit; "
        "k = jit.load([m.add.spec(i) for i in range(3)]); print(len(k))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pair = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
        for _ in "ab"
    ]

    assert [p.communicate()[0].strip() for p in pair] == [b"3", b"3"]
    assert len(cache_files(tmp_path)) == 3
    assert not list((tmp_path / "cache").glob("*/*.tmp"))


def test_a_kernel_with_wrong_bits_is_not_published(kernels, tmp_path):
    with pytest.raises(QuantError, match="lane 4 is off by one"):
        jit.load([kernels.times.spec(13)], fallback=False)

    assert all(len(f.read_bytes()) == 80 for f in cache_files(tmp_path))


def test_a_broken_check_is_reported_as_such(kernels):
    with pytest.raises(QuantError) as error:
        jit.load([kernels.times.spec(14)])

    assert "the check itself is broken" in str(error.value)


@pytest.mark.skipif(cpu.isa() == "generic", reason="needs an instruction set above generic")
def test_a_worker_that_dies_means_the_next_lower_isa(kernels, monkeypatch):
    notices, again = Log(), Log()
    specs = [kernels.dies.spec(1), kernels.add.spec(1)]

    found = jit.load(specs, notice=notices)
    forget(monkeypatch)
    second = jit.load(specs, notice=again, progress=lambda *_: pytest.fail("compiled again"))

    assert found.isa == second.isa == "generic"
    assert call(found[specs[0]], 0, 0, 0) == 1
    assert {code for code, _ in notices} == {"isa-lowered"}
    assert "SIGILL" in notices[0][1]
    assert len(again) == len(notices)


@pytest.mark.skipif(cpu.isa() == "generic", reason="needs an instruction set above generic")
def test_a_worker_killed_for_memory_is_tried_again_and_then_explained(kernels, tmp_path):
    with pytest.raises(QuantError, match="lack of memory"):
        jit.load([kernels.dies.spec(2)])

    assert cache_files(tmp_path) == []


def test_a_kernel_that_does_not_compile_names_the_reason(kernels):
    with pytest.raises(QuantError) as error:
        jit.load([kernels.wrong.spec(0)])

    assert "does not compile" in str(error.value)
    assert "no_such_word" in str(error.value)


def test_without_processes_kernels_compile_here(kernels):
    code = (
        f"import {kernels.__name__} as m, quant.build as b\n"
        "from quant import jit\n"
        "def no(): raise OSError\n"
        "b.Worker = no\n"
        "print(len(jit.load([m.add.spec(1), m.add.spec(2)])))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)

    assert run.stdout.strip() == "2", run.stderr


def test_a_warm_load_imports_no_numba(kernels):
    jit.load([kernels.add.spec(1)])
    code = (
        f"import sys, {kernels.__name__} as m; from quant import jit; jit.load([m.add.spec(1)]);"
        "print([x for x in ('numba', 'subprocess', 'quant.build') if x in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)

    assert run.stdout.strip() == "[]", run.stderr


def test_versions_are_those_that_the_packages_report():
    from importlib.metadata import version

    for name in ("numba", "llvmlite"):
        assert objects.version(name) == version(name)
