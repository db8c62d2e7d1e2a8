"""Kernels from another machine make numba and llvmlite unnecessary: few packages remain."""

import re

import pytest

from gguf_runtime import Model
from gguf_runtime.cli.kernels import variants
from quant import bundle, cpu, targets
from tests.machine import bare
from tests.tiny import with_template

DEVICES = bare.ROOT / "docs" / "devices.md"

pytestmark = pytest.mark.skipif(
    targets.here() is None or not targets.here().startswith("linux-"),
    reason="without llvmlite objects are loaded on Linux alone",
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """All kernels of this CPU's best instruction set, in a file."""
    path = tmp_path_factory.mktemp("kernels") / "kernels.bin"
    machine = targets.machine(f"{targets.here()}-{cpu.isa()}")
    bundle.write(str(path), machine.system, bundle.collect(machine, variants()))
    return path


@pytest.fixture
def place(tmp_path):
    """A folder with few packages, and a cache without kernels."""
    (tmp_path / "cache").mkdir(mode=0o700)
    return bare.site(tmp_path / "site"), {"GGUF_RUNTIME_CACHE": str(tmp_path / "cache")}


def test_with_imported_kernels_a_chat_model_runs_without_numba(place, kernels, tmp_path):
    site, cache = place
    model = with_template(tmp_path / "m.gguf")
    asked = ("run", model, "Hello", "-n", "8", "--temperature", "0", "-t", "2")
    with Model(model, threads=2) as m:
        expected = m.complete("Hello", max_tokens=8, temperature=0).text

    before = bare.run(site, *asked, **cache)
    imported = bare.run(site, "warmup", "--import", kernels, **cache)
    after = bare.run(site, *asked, **cache)

    assert before.returncode == 4
    assert "numba, which compiles them, is not installed" in before.stderr
    assert "warmup --target, --import" in before.stderr
    assert imported.returncode == 0, imported.stderr
    assert f"kernels are ready: {len(variants())} for {cpu.isa()}" in imported.stderr
    assert re.search(r"sha256 [0-9a-f]{64}, made by \w+", imported.stderr)
    assert (after.returncode, after.stdout.rstrip("\n")) == (0, expected.rstrip("\n")), after.stderr


def test_kernels_of_a_lower_instruction_set_are_used_with_a_notice(place, tmp_path):
    if len(cpu.exact()) < 2:
        pytest.skip(f"this CPU runs {cpu.isa()} alone")
    site, cache = place
    lower = cpu.lower(cpu.isa())
    machine = targets.machine(f"{targets.here()}-{lower}")
    path = tmp_path / "kernels.bin"
    model = with_template(tmp_path / "m.gguf")
    bundle.write(str(path), machine.system, bundle.collect(machine, model_specs(model)))
    assert bare.run(site, "warmup", "--import", path, **cache).returncode == 0

    done = bare.run(site, "run", model, "Hi", "-n", "2", "-t", "1", **cache)

    assert done.returncode == 0, done.stderr
    assert f"using {lower}, which is slower" in done.stderr


def model_specs(model):
    """The kernels that one model needs, found by running it."""
    from quant import jit

    with Model(model, threads=1) as m:
        m.complete("Hi", max_tokens=2)
    return sorted({spec for spec, _ in jit._loaded})


def test_the_documented_list_of_packages_is_the_one_that_is_tested():
    (line,) = re.findall(r"pip install --no-deps (.*)", DEVICES.read_text(encoding="utf-8"))
    named = {word.replace("-", "_") for word in line.split()}

    brought = {name for name in bare.BROUGHT if name != "numpy.libs"}
    assert named == {"gguf_runtime", *bare.NEEDED, *brought}


@pytest.mark.parametrize("name", bare.NEEDED)
def test_no_package_of_the_list_is_there_for_nothing(name, kernels, tmp_path):
    model = with_template(tmp_path / "m.gguf")
    rest = tuple(n for n in (*bare.NEEDED, *bare.BROUGHT) if n != name)
    site = bare.site(tmp_path / "site", rest)
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    bare.run(site, "warmup", "--import", kernels, GGUF_RUNTIME_CACHE=str(cache))

    done = bare.run(site, "run", model, "Hi", "-n", "1", GGUF_RUNTIME_CACHE=str(cache))

    assert done.returncode != 0
