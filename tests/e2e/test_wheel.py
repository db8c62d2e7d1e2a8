"""The wheel: what is in it, and that it runs where nothing of the checkout is in reach."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.tiny import SMALL

ROOT = Path(__file__).parents[2]
BUILD = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
INSTALL = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile"]


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip(*BUILD, "--wheel-dir", str(folder), str(ROOT))
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The scripts of a new environment with the wheel; its dependencies are those of this one."""
    home = tmp_path_factory.mktemp("with ü space") / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip("--python", str(python), *INSTALL, str(wheel))
    return home / "bin"


def call(script: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(script), *words],
        env=own | more,
        cwd=script.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_wheel_holds_the_two_packages_their_types_and_the_catalog(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        catalog = archive.read("gguf_runtime/hub/catalog.toml")
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"gguf_runtime", "quant"}
    assert {"gguf_runtime/py.typed", "quant/py.typed"} <= set(names)
    assert catalog == (ROOT / "models" / "catalog.toml").read_bytes()
    sources = {
        str(p.relative_to(ROOT))
        for d in ("gguf_runtime", "quant")
        for p in (ROOT / d).rglob("*.py")
    }
    assert {n for n in names if n.endswith(".py")} == sources


def test_the_wheel_has_two_programs_and_what_they_need(wheel):
    with zipfile.ZipFile(wheel) as archive:
        info = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        facts = archive.read(info).decode()
        entry = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "gg = gguf_runtime.cli.app:main" in entry
    assert "gguf-runtime = gguf_runtime.cli.app:main" in entry
    needs = [l for l in facts.splitlines() if l.startswith("Requires-Dist: ") and "extra" not in l]
    assert len(needs) == len(project["dependencies"])


def test_the_installed_program_runs_away_from_the_checkout(installed, tmp_path):
    gg = installed / "gg"
    assert call(gg, "--version").stdout.startswith("gguf-runtime ")
    assert "smollm2" in call(gg, "list", GGUF_RUNTIME_MODELS=str(tmp_path)).stdout
    answer = call(installed / "gguf-runtime", "run", str(SMALL), "-p", "a", "-n", "4", "--raw")
    assert answer.stdout
    where = "import gguf_runtime, quant; print(gguf_runtime.__file__, quant.__file__)"
    files = call(installed / "python", "-c", where).stdout.split(" quant")[0]
    assert str(installed.parent) in files
    assert str(ROOT / "gguf_runtime") not in files


def test_the_lower_package_runs_without_the_upper_one(installed, tmp_path):
    """`quant` alone: as a wheel with nothing else would have it."""
    alone = tmp_path / "site"
    alone.mkdir()
    (site,) = installed.parent.glob("lib/python*/site-packages")
    (alone / "quant").symlink_to(site / "quant")
    program = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(site)!r}];"
        f" sys.path.insert(0, {str(alone)!r}); import quant;"
        " assert 'gguf_runtime' not in sys.modules; print(sorted(quant.TYPES)[0])"
    )
    assert call(installed / "python", "-c", program).stdout == "BF16\n"
