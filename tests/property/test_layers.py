"""Imports point down only, and what is light stays light."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import quant

ROOT = Path(quant.__file__).parents[1]

# Each part may import the parts named beside it, itself and nothing else of ours.
BELOW = {
    "quant": set(),
    "errors": set(),
    "gguf": {"quant", "errors"},
    "text": {"quant", "errors", "gguf"},
    "cache": {"quant", "errors"},
    "kernels": {"quant", "errors", "cache"},
    "samplers": {"quant", "errors", "kernels"},
    "sampling": {"quant", "errors", "kernels", "samplers"},
    "graph": {"quant", "errors", "gguf", "cache", "kernels"},
    "arch": {"quant", "errors", "gguf", "graph"},
    "hub": {"quant", "errors"},
    "engine": {
        *("quant", "errors", "hub", "gguf", "text", "cache"),
        *("kernels", "samplers", "sampling", "graph", "arch"),
    },
}
BELOW["gguf_runtime"] = {"errors", "engine"}
BELOW["cli"] = {*BELOW, "gguf_runtime"}
BELOW["__main__"] = {"cli"}


def part_of(module):
    """`gguf_runtime.graph.bind` is of `graph`, `quant.cpu` of `quant`."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] or first if first == "gguf_runtime" else first


def sources(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        names = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(names[:-1] if names[-1] == "__init__" else names), path


def imports(module, path):
    """Absolute names of all modules of ours that a source imports, also in functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in ("quant", "gguf_runtime") and is_module(name):
                yield name


def is_module(name):
    base = ROOT.joinpath(*name.split("."))
    return base.with_suffix(".py").is_file() or (base.is_dir() and name != "gguf_runtime")


EVERY = [*sources("quant"), *sources("gguf_runtime")]


@pytest.mark.parametrize("part", sorted({part_of(m) for m, _ in EVERY}))
def test_imports_point_down(part):
    allowed = {part, *BELOW[part]}
    upward = [
        f"{module} imports {name}"
        for module, path in EVERY
        if part_of(module) == part
        for name in imports(module, path)
        if part_of(name) not in allowed
    ]

    assert not upward


def test_no_part_stands_below_itself():
    def all_below(part):
        return BELOW[part].union(*(all_below(p) for p in BELOW[part]))

    assert [p for p in BELOW if p in all_below(p)] == []


def run(code):
    """The last line that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_quant_imports_with_gguf_runtime_hidden():
    code = """
import importlib, pkgutil, sys
sys.modules["gguf_runtime"] = None  # importing it is an ImportError now
import quant
for m in pkgutil.walk_packages(quant.__path__, "quant."):
    importlib.import_module(m.name)
print(quant.dequantize.__name__)
"""
    assert run(code) == "dequantize"


@pytest.mark.parametrize("module", ["quant", "quant.cpu", "quant.jit", "gguf_runtime"])
def test_a_light_import_loads_nothing_heavy(module):
    heavy = ("numpy", "numba", "llvmlite", "typer", "jinja2")
    code = f"import sys, {module}\nprint([m for m in {heavy} if m in sys.modules])"

    assert run(code) == "[]"


@pytest.mark.parametrize("package", ["quant", "gguf_runtime"])
def test_all_lists_what_can_be_imported_on_first_use(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    offered = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
    }

    assert set(module.__all__) == offered
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018
