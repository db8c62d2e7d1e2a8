"""Run as `cross_model.py ISA ARCH FOLDER CASE...`: objects of all kernels that cases of `tests.digests` need.

The cases run here first, which tells the kernels. Writes SYMBOL.o and specs.json; for an ISA of this
or of another processor, in a process of its own, as the compiler demands.
"""

import importlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from quant import jit  # noqa: E402 - the path comes first
from quant.compile import compile_kernel  # noqa: E402
from quant.symbols import read_symbols  # noqa: E402
from tests.digests import compute  # noqa: E402


def main(isa, arch, folder, *cases):
    for case in cases:
        compute(case)
    specs = sorted({spec for spec, _ in jit._loaded})
    for spec in specs:
        kernel = getattr(importlib.import_module(spec.module), spec.factory)(*spec.params)
        data = compile_kernel(kernel, spec.symbol, isa, arch)
        assert not read_symbols(data).undefined, spec
        (Path(folder) / f"{spec.symbol}.o").write_bytes(data)
    (Path(folder) / "specs.json").write_text(json.dumps(specs))


if __name__ == "__main__":
    main(*sys.argv[1:])
