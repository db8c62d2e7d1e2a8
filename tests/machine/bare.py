"""Pythons with few packages: a folder of links to those that are named, and nothing else to import."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What `run` needs where kernels were brought from another machine: docs/devices.md lists the same.
NEEDED = ("numpy", "jinja2", "typer", "platformdirs")
# And what these bring along.
BROUGHT = ("markupsafe", "shellingham", "annotated_doc", "numpy.libs")
HANG_S = 300


def site(folder: Path, packages: tuple[str, ...] = (*NEEDED, *BROUGHT)) -> Path:
    """A folder for PYTHONPATH with links to packages of this Python."""
    folder.mkdir()
    for name in packages:
        if name == "numpy.libs":  # libraries beside the package
            place = Path(importlib.util.find_spec("numpy").origin).parents[1] / name
        else:
            place = Path(importlib.util.find_spec(name).origin).parent
        if place.exists():
            (folder / place.name).symlink_to(place)
    return folder


def run(site: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The program with these packages alone, without a home folder."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}{os.pathsep}{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        # -S: without the folder of installed packages
        [sys.executable, "-S", "-m", "gguf_runtime", *map(str, args)],
        env=environment | env,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
