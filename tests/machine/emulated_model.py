"""Run by a Python of another architecture: `emulated_model.py ISA FOLDER CASE...`, a digest a line.

Links the objects of `cross_model.py`; whole models, their threads included, then run on them.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from quant import jit  # noqa: E402 - the path comes first
from quant.link import link  # noqa: E402
from tests.digests import compute  # noqa: E402


def main(isa, folder, *cases):
    os.environ["GGUF_RUNTIME_ISA"] = isa
    rows = json.loads((Path(folder) / "specs.json").read_text())
    specs = [jit.Spec(*(tuple(x) if isinstance(x, list) else x for x in row)) for row in rows]
    symbols = [spec.symbol for spec in specs]
    addresses = link({s: (Path(folder) / f"{s}.o").read_bytes() for s in symbols})
    jit._loaded.update({(spec, isa): addresses[spec.symbol] for spec in specs})
    for case in cases:
        print(case, compute(case), flush=True)
    assert "llvmlite" not in sys.modules  # objects are loaded without it


if __name__ == "__main__":
    main(*sys.argv[1:])
