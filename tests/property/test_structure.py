"""The plan of the house: imports point down, nothing else is shipped, every name is exported."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gguf_runtime", "quant")
# Floors of gguf_runtime from below; a room imports from lower floors and from its own.
FLOORS = (
    {"errors"},
    {"gguf", "hub", "cache"},
    {"text", "kernels"},
    {"sampling", "graph"},
    {"arch"},
    {"engine"},
    {"cli", "__main__"},
)
KNOWS_NO_MODELS = ("text", "gguf", "hub")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names of our own modules that a file imports when it is imported or called."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for n in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
    return {n for n in found if n.split(".")[0] in PACKAGES}


def floor_of(room: str) -> int:
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "gguf_runtime").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules("quant"), ids=lambda p: str(p.relative_to(ROOT)))
def test_quant_knows_nothing_of_the_runtime(path):
    assert not {n for n in imports(path) if n.startswith("gguf_runtime")}


def test_imports_point_down():
    wrong = []
    for path in modules("gguf_runtime"):
        if path.parent.name == "gguf_runtime" and path.name == "__init__.py":
            continue
        here = floor_of(room_of(path))
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "gguf_runtime" and len(parts) > 1 and floor_of(parts[1]) > here:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_text_and_files_know_no_models():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in KNOWS_NO_MODELS
        for path in modules(f"gguf_runtime/{room}")
        for name in imports(path)
        if name.startswith(("gguf_runtime.arch", "gguf_runtime.engine"))
    ]
    assert wrong == []


def test_there_is_no_drawer_for_odd_things():
    names = {p.name for package in PACKAGES for p in modules(package)}
    assert not names.intersection({"utils.py", "util.py", "common.py", "helpers.py", "misc.py"})


@pytest.mark.parametrize("name", ["gguf_runtime", "quant", "gguf_runtime.errors"])
def test_every_exported_name_exists(name):
    module = import_module(name)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert all(getattr(module, n) is not None for n in module.__all__)


def test_the_wheel_holds_the_two_packages_and_the_catalog():
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = facts["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert wheel["force-include"] == {"models/catalog.toml": "gguf_runtime/hub/catalog.toml"}
    assert all((ROOT / package / "py.typed").exists() for package in PACKAGES)
    assert set(facts["project"]["scripts"]) == {"gguf-runtime", "gg"}
