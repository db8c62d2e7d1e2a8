"""GGUF files written field by field for tests, right or wrong on purpose.

Written from the format's description alone; shares no code with the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = dict(zip((U8, I8, U16, I16, U32, I32, F32, U64, I64, F64), "BbHhIifQqd", strict=True))


def string(text: str | bytes, order: str = "<") -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(f"{order}Q", len(raw)) + raw


def scalar(kind: int, value, order: str = "<") -> bytes:
    if kind == STRING:
        return string(value, order)
    if kind == BOOL:
        return bytes([value])
    return struct.pack(order + CODES[kind], value)


def array(kind: int, values: Sequence, order: str = "<") -> bytes:
    """An array's payload: element kind, count, elements; arrays of arrays take raw payloads."""
    head = struct.pack(f"{order}IQ", kind, len(values))
    return head + b"".join(v if kind == ARRAY else scalar(kind, v, order) for v in values)


def pair(key: str | bytes, kind: int, value, order: str = "<") -> bytes:
    """One metadata entry; `value` of an array is its payload."""
    payload = value if kind == ARRAY else scalar(kind, value, order)
    return string(key, order) + struct.pack(f"{order}I", kind) + payload


def entry(
    name: str | bytes, shape: Iterable[int], type_id: int, offset: int, order: str = "<"
) -> bytes:
    """One row of the tensor table."""
    shape = tuple(shape)
    dims = struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape)
    return string(name, order) + dims + struct.pack(f"{order}IQ", type_id, offset)


def header(n_tensors: int, n_keys: int, version: int = 3, order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, n_tensors, n_keys)


def build(
    pairs: Sequence[bytes],
    tensors: Sequence[tuple[str, Sequence[int], int, bytes]] = (),
    *,
    version: int = 3,
    alignment: int = 32,
    order: str = "<",
) -> bytes:
    """A sound file: tensors are (name, shape, type id, bytes), placed one after the other."""
    rows, data = [], b""
    for name, shape, type_id, raw in tensors:
        data += b"\0" * (-len(data) % alignment)
        rows.append(entry(name, shape, type_id, len(data), order))
        data += raw
    start = header(len(rows), len(pairs), version, order) + b"".join(pairs) + b"".join(rows)
    if data:
        start += b"\0" * (-len(start) % alignment)
    return start + data


def tiny(order: str = "<", version: int = 3) -> bytes:
    """A small file of architecture llama with every kind of value and three tensors."""
    pairs = [
        pair("general.architecture", STRING, "llama", order),
        pair("general.name", STRING, "tiny ü", order),
        pair("llama.block_count", U32, 1, order),
        pair("llama.embedding_length", U32, 32, order),
        pair("llama.context_length", U64, 128, order),
        pair("llama.attention.head_count", I32, 2, order),
        pair("llama.feed_forward_length", ARRAY, array(I32, [64], order), order),
        pair("llama.rope.freq_base", F32, 500.0, order),
        pair("llama.attention.layer_norm_rms_epsilon", F64, 1e-6, order),
        pair("tokenizer.ggml.model", STRING, "gpt2", order),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, ["a", "", "ü", b"\xff"], order), order),
        pair("tokenizer.ggml.scores", ARRAY, array(F32, [0.0, -1.0, 0.5, 2.0], order), order),
        pair("tokenizer.ggml.add_bos_token", BOOL, 1, order),
        pair("tokenizer.ggml.bos_token_id", U16, 2, order),
        pair("x.small", I8, -3, order),
        pair("x.byte", U8, 200, order),
        pair("x.short", I16, -300, order),
        pair("x.long", I64, -(1 << 40), order),
        pair("x.flags", ARRAY, array(BOOL, [1, 0, 1], order), order),
        pair(
            "x.nested",
            ARRAY,
            array(ARRAY, [array(U8, [1, 2], order), array(U8, [], order)], order),
            order,
        ),
    ]
    tensors = [
        ("token_embd.weight", (32, 4), 8, bytes(range(136))),
        ("blk.0.attn_norm.weight", (32,), 0, struct.pack(f"{order}32f", *range(32))),
        ("blk.0.ffn_up.weight", (32, 64), 2, bytes(i % 251 for i in range(18 * 64))),
    ]
    return build(pairs, tensors, order=order, version=version)
