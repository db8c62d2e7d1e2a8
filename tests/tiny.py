"""The tiny committed models, and files made from them with other numbers or more keys."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gguf_runtime.gguf import open_file
from gguf_runtime.gguf.part import open_part
from tests.gguf_bytes import STRING, pair

ARCHS = Path(__file__).parent / "data" / "archs"
QWEN3, GEMMA3, SMALL = (ARCHS / f"{n}.gguf" for n in ("qwen3", "gemma3", "quant-qwen3-q4_0"))
VOCAB, END = 272, 2  # of all of them: three control tokens, bytes, a few pairs

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant: {% endif %}"
)


def edited(
    source: Path,
    target: Path,
    pairs: Sequence[bytes] = (),
    tensors: Mapping[str, float] | None = None,
) -> Path:
    """A copy with metadata entries more and F32 tensors filled with a value."""
    part = open_part(source)
    old = bytes(part.data)
    keys = struct.unpack_from("<Q", old, 16)[0]
    head = old[:16] + struct.pack("<Q", keys + len(pairs)) + b"".join(pairs)
    head += old[24 : part.header_bytes]
    head += b"\0" * (-len(head) % part.alignment)
    data = np.frombuffer(old, np.uint8)[part.data_start :].copy()
    with open_file(source) as file:
        for name, value in (tensors or {}).items():
            info = file.tensors[name]
            start = info.offset - part.data_start
            data[start : start + info.size_bytes].view(np.float32)[:] = value
    target.write_bytes(head + data.tobytes())
    return target


def with_template(target: Path, source: Path = QWEN3, template: str = TEMPLATE) -> Path:
    """A copy that can chat."""
    return edited(source, target, [pair("tokenizer.chat_template", STRING, template)])


def ids_of(n: int, seed: int = 0) -> list[int]:
    """Ids without control tokens, the same on every machine."""
    return [4 + (seed * 31 + k * k * 7 + k * 13) % (VOCAB - 4) for k in range(n)]
