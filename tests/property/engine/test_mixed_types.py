"""Any tensor may have any type: a few BF16 matrices among F16 and quantized ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from gguf_runtime import Model
from gguf_runtime.arch import load
from gguf_runtime.gguf import open_file
from gguf_runtime.graph.exact import Exact
from tests.archs import TOLERANCE
from tests.tiny import QWEN3, ids_of

F16, BF16 = 1, 30


def retyped(source: Path, target: Path, names: list[str]) -> Path:
    """A copy in which F16 tensors are BF16, which takes as many bytes."""
    raw = bytearray(source.read_bytes())
    with open_file(source) as file:
        infos = [file.tensors[name] for name in names]
    for info in infos:
        key = info.name.encode()
        at = raw.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
        at += 4 + 8 * len(info.shape)
        assert struct.unpack_from("<I", raw, at)[0] == F16
        struct.pack_into("<I", raw, at, BF16)
        end = info.offset + info.size_bytes
        values = np.frombuffer(raw[info.offset : end], np.float16).astype("<f4")
        raw[info.offset : end] = (values.view("<u4") >> 16).astype("<u2").tobytes()
    target.write_bytes(raw)
    return target


@pytest.mark.parametrize(
    "names",
    [
        ["blk.0.attn_k.weight", "blk.1.ffn_down.weight"],
        ["blk.0.attn_q.weight", "blk.0.ffn_gate.weight", "token_embd.weight"],
    ],
)
def test_a_few_tensors_of_another_type_are_computed_like_all_others(tmp_path, names):
    path = retyped(QWEN3, tmp_path / "mixed.gguf", names)
    ids = ids_of(24)
    with open_file(path) as file:
        exact = Exact(load(file).graph, file)
        expected, _ = exact.forward(exact.sequence(), ids)

    with Model(path, context=256, cache_type="f32", threads=1) as model:
        logits = model.logits(ids)

    assert np.abs(logits - expected).max() <= TOLERANCE
