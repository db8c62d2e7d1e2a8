"""The plan of the house: nothing else is shipped, every name is exported; see `test_layers`."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gguf_runtime", "quant")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


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
