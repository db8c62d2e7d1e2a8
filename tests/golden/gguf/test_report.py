"""`inspect`: facts in words and as JSON, for every file that opens (rows G17, N7)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gguf_runtime.gguf import open_file
from gguf_runtime.gguf.report import as_dict, describe
from tests.gguf_bytes import STRING, U8, build, entry, header, pair, tiny

HERE = Path(__file__).parents[2] / "data" / "archs"
GOLDEN = os.environ.get("GGUF_RUNTIME_GOLDEN")
FILES = sorted((Path(GOLDEN) / "archs" if GOLDEN else HERE).glob("*.gguf"))


def line(text: str, label: str) -> str:
    return next(x for x in text.splitlines() if x.strip().startswith(label))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_architecture_is_described(path):
    file = open_file(path)

    text = describe(file, supported=["llama"], kv=True, tensors=True)
    facts = as_dict(file, supported=["llama"], kv=True, tensors=True)

    assert text.endswith("\n")
    assert text.replace("\n", "").isprintable()
    assert file.architecture in text.splitlines()[0]
    assert facts["problems"] == []
    assert len(facts["tensors"]) == len(file.tensors)
    assert set(facts["metadata"]) == set(file.metadata)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_yarn_is_described_as_it_takes_effect():
    rope = line(describe(open_file(HERE / "llama-yarn-beta.gguf")), "rope")
    for words in (
        "base 10,000",
        "yarn scaling by 4 from 256",
        "trained length 1,024",
        "beta fast 8",
    ):
        assert words in rope


def test_window_layers_have_their_own_rope_base():
    text = describe(open_file(HERE / "gemma3.gguf"))
    assert "in window layers)" in line(text, "rope")
    assert "linear scaling by 8 (none in window layers)" in line(text, "rope")


def test_types_add_up_to_the_file():
    file = open_file(HERE / "quant-llama-q4_k_m.gguf")
    facts = as_dict(file)

    assert sum(t["tensors"] for t in facts["types"]) == len(file.tensors)
    assert sum(t["weights"] for t in facts["types"]) == facts["n_params"]
    total = sum(t["size_bytes"] for t in facts["types"])
    assert facts["bits_per_weight"] == pytest.approx(8 * total / facts["n_params"], abs=1e-3)


def test_what_cannot_run_is_said_with_the_reason(files):
    rows = entry("w", (64,), 142, 0)
    raw = header(1, 1) + pair("general.architecture", STRING, "mystery") + rows
    raw += bytes(-len(raw) % 32) + bytes(64)
    file = files.open(raw)

    text = describe(file, supported=["llama", "qwen2"], refusals=["something else"])

    assert "runs here     no" in text
    assert "architecture mystery (supported: llama, qwen2)" in text
    assert "tensor type type 142 in w" in text
    assert "something else" in text
    assert "key mystery.block_count is missing" in text
    facts = as_dict(file, supported=["mystery"])
    assert facts["runnable"] is False


def test_big_endian_files_can_be_described(files):
    file = files.open(tiny(order=">"), foreign_order=True)
    text = describe(file, supported=["llama"], kv=True, tensors=True)
    assert "big-endian" in text
    assert "32 x 64" in text
    assert as_dict(file)["byte_order"] == "big"


def test_text_of_the_file_cannot_steer_the_terminal(files):
    raw = build(
        [
            pair("general.architecture", STRING, "x\x1b]0;y\x07"),
            pair("general.name", STRING, "a\nb\u202e"),
            pair("k\x9b2J", U8, 1),
        ],
        [("t\x1b[31m", (1,), 24, b"\0")],
    )
    text = describe(files.open(raw), supported=["llama"], kv=True, tensors=True)
    assert text.replace("\n", "").isprintable()
    assert "a\\x0ab\\u202e" in text
