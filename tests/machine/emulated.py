"""Run by a Python of another architecture: `emulated.py ISA KERNEL=OBJECT...` prints a digest a line.

Links the objects of `cross.py` and runs each on all hard cases.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from quant import selftest  # noqa: E402 - the path comes first
from quant.link import callable_at, link  # noqa: E402


def main(isa, *kernels):
    specs = {selftest.name_of(spec): spec for spec in selftest.specs()}
    for text, path in (pair.split("=", 1) for pair in kernels):
        run = callable_at(link({"kernel": Path(path).read_bytes()})["kernel"])
        print(text, selftest.computed(specs[text], isa, run), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
