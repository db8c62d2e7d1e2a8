"""Run by a Python of another architecture: `emulated_checks.py ISA KERNEL=OBJECT...`.

KERNEL is `module.factory:parameters`. Links each object and runs the check that its factory names; prints the
kernel and what is wrong, or `ok`, a line each.
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from quant.link import callable_at, link  # noqa: E402 - the path comes first


def main(isa, *kernels):
    for text, path in (pair.split("=", 1) for pair in kernels):
        name, *params = text.split(":")
        module_name, factory_name = name.rsplit(".", 1)
        module = importlib.import_module(module_name)
        factory = getattr(module, factory_name)
        run = callable_at(link({"kernel": Path(path).read_bytes()})["kernel"])
        print(text, getattr(module, factory.check)(run, isa, *params) or "ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
