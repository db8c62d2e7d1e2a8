"""`quant.sources`: a kernel's key changes with everything that its code may depend on."""

import importlib
import itertools

import pytest

from quant import QuantError, jit, sources

KERNEL = """
from quant.jit import kernel
from {package}.near import step

@kernel
def add(k):
    return step(k)
"""
STEP = "def step(k): ...\n"
number = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose kernel module imports `near`, which imports what a test says."""
    name = f"package_{next(number)}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("LIMIT = 1\n")
    (folder / "kernels.py").write_text(KERNEL.format(package=name))
    (folder / "near.py").write_text(STEP)
    (folder / "far.py").write_text("STEP = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sources.forget()


def key(folder):
    """The key as a new process would find it."""
    sources.forget()
    module = importlib.import_module(f"{folder.name}.kernels")
    return jit.object_key(module.add.spec(2), "generic")


@pytest.mark.parametrize(
    "statement",
    [
        "from {}.far import STEP",
        "from {} import far",
        "from {} import far as f, near",
        "import {}.far",
        "import os, {}.far",
        "from .far import STEP",
        "from . import far",
        "from {}.far import (\n    STEP,  # in words (so to say)\n)",
        "def step(k):\n    from {}.far import STEP",
        "try:\n    from {}.far import STEP\nexcept ImportError: ...",
    ],
)
def test_editing_a_helper_two_modules_away_changes_the_key(package, statement):
    (package / "near.py").write_text(statement.format(package.name) + "\n" + STEP)
    before = key(package)

    (package / "far.py").write_text("STEP = 2\n")

    assert key(package) != before


def test_editing_what_is_not_imported_keeps_the_key(package):
    before = key(package)

    (package / "far.py").write_text("STEP = 2\n")

    assert key(package) == before


def test_another_package_in_the_same_folder_is_no_part_of_the_key(package):
    """As in site-packages, where numpy and numba lie beside an installed program."""
    other = package.parent / f"{package.name}_other"
    other.mkdir()
    (other / "__init__.py").write_text("STEP = 1\n")
    (package / "near.py").write_text(f"{STEP}\ndef more():\n    import {other.name}\n")
    before = key(package)
    (other / "__init__.py").write_text("STEP = 2\n")
    assert key(package) == before


def test_a_name_that_a_package_itself_holds_is_followed(package):
    (package / "near.py").write_text(f"from {package.name} import LIMIT\n" + STEP)
    before = key(package)

    (package / "__init__.py").write_text("LIMIT = 2\n")

    assert key(package) != before


@pytest.mark.parametrize(
    "text",
    [
        "from {}.far_checks import STEP\n",
        "if TYPE_CHECKING:\n    from {0}.far import STEP\n\n    from {0} import far\n",
    ],
    ids=["checks", "types"],
)
def test_what_only_checks_or_types_kernels_keeps_the_key(package, text):
    (package / "far_checks.py").write_text("STEP = 1\n")
    (package / "near.py").write_text("TYPE_CHECKING = 0\n" + text.format(package.name) + STEP)
    before = key(package)

    (package / "far.py").write_text("STEP = 2\n")
    (package / "far_checks.py").write_text("STEP = 2\n")

    assert key(package) == before


def test_modules_that_import_each_other_have_a_key(package):
    (package / "near.py").write_text(f"from {package.name} import kernels\n" + STEP)

    assert key(package) != b""


def test_the_matmul_depends_on_what_it_is_made_of():
    sources.forget()
    root = sources.path_of("quant").removesuffix("quant/__init__.py")

    found, waiting = set(), ["quant.gemm_panel"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += sources._imports(name, sources.path_of(name), root)

    assert {"quant.gemm", "quant.formats.registers", "quant.types"} <= found
    assert not {"quant.jit", "quant.checks", "quant.simd.words"} & found


def test_a_module_without_a_source_is_refused():
    with pytest.raises(QuantError, match="the kernel module sys has no source file"):
        sources.digest("sys")
