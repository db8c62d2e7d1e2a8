"""Cut the sample that is committed out of the whole golden data: make.py GOLDEN_FOLDER."""

import json
import sys
from pathlib import Path

import numpy as np

from quant.types import TYPES

COLUMNS = 256
HERE = Path(__file__).parent


def first_of_each(kinds):
    """Row numbers of the first two rows of every kind."""
    rows = [i for i, k in enumerate(kinds) if list(kinds[:i]).count(k) < 2]
    return np.array(rows, int)


def main(golden):
    index = json.loads((golden / "quants/INDEX.json").read_text())["types"]
    arrays, facts = {}, {}
    for t in TYPES.values():
        z = np.load(golden / f"quants/{t.name}.npz")
        width = COLUMNS // t.values * t.bytes
        for kinds, blocks, floats in (
            ("row_kind", "blocks", "floats"),
            ("hostile_kind", "hostile_blocks", "hostile_floats"),
        ):
            rows = first_of_each(z[kinds])
            arrays[f"{t.name}.{blocks}"] = z[blocks][rows, :width]
            arrays[f"{t.name}.{floats}"] = z[floats][rows, :COLUMNS]
        if "quantized_ruled" in z:
            arrays[f"{t.name}.quantized_ruled"] = z["quantized_ruled"][:, :width]
        arrays["source"] = z["source"][:, :COLUMNS]
        dot = index[t.name]["vec_dot"]
        facts[t.name] = {
            "vec_dot": {k: dot[k]["relative"] for k in ("plain", "outliers")},
            "quantization_error": index[t.name].get("quantization_error"),
        }
    np.savez_compressed(HERE / "formats.npz", **arrays)
    (HERE / "figures.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
