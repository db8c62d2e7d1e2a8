"""The layout of a cache page: 64 absolute positions of one layer, as the kernels store and read them.

Page of one layer      [n_head_kv] heads, `head_bytes` apart, each keys then values; 64-byte aligned
keys     f16, f32      [4 blocks][key_dim][16 keys]: a strip is one dimension of 16 keys
         q8_0          [4 blocks][key_dim / 32]{ d f16[16 keys] | code i8[32][16 keys] }
values   f16, f32      [64 positions][value_dim rounded up to 16]; the padding is written as zeros
         q8_0          d f16[value_dim / 32][64 positions] | code i8[64 positions][value_dim]
q8_0     d = f16(amax / 127), code = round_even(x / d) within ±127, 0 where d is 0
Position p lives in page p // 64 of its sequence, slot p % 64. Slots that were never written hold
anything, NaN included. A page of a layer group holds its layers one after the other; `layer_bytes`
is the step. The functions below are for tests and exact arithmetic; engines use the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import RequestError

U8 = NDArray[np.uint8]
F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
I8 = NDArray[np.int8]

POSITIONS = 64  # per page
KEYS = 16  # per block of keys: the lanes of a strip
BLOCKS = POSITIONS // KEYS
GROUP = 32  # values that share a scale in q8_0
KINDS = ("f16", "f32", "q8_0")
LARGEST_F16 = 65520.0  # magnitudes from here on round to infinity in half precision

_VALUE_BYTES = {"f16": 2, "f32": 4}


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """What one layer keeps of every position: keys and values of `n_head_kv` heads."""

    layer: int
    n_head_kv: int
    head_dim: int
    window: int  # positions that a query sees; 0: all before it


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and offsets in bytes of one layer's part of a page."""

    kind: str
    key_dim: int
    value_dim: int
    n_head_kv: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RequestError(
                f"cache type {self.kind!r} is not known", expected=f"one of {', '.join(KINDS)}"
            )
        if self.kind == "q8_0" and (self.key_dim % GROUP or self.value_dim % GROUP):
            raise RequestError(
                "cache type q8_0 does not fit this model",
                expected=f"a head dimension divisible by {GROUP}",
                got=f"{self.key_dim} for keys, {self.value_dim} for values",
                hint="use --cache-type f16",
            )

    @property
    def value_row(self) -> int:
        """Values per row, padding included."""
        return -(-self.value_dim // 16) * 16

    @property
    def key_bytes(self) -> int:
        """Keys of one head; the values start here."""
        if self.kind == "q8_0":
            return POSITIONS * self.key_dim // GROUP * (GROUP + 2)
        return POSITIONS * self.key_dim * _VALUE_BYTES[self.kind]

    @property
    def value_bytes(self) -> int:
        """Values of one head."""
        if self.kind == "q8_0":
            return POSITIONS * self.value_dim // GROUP * (GROUP + 2)
        return POSITIONS * self.value_row * _VALUE_BYTES[self.kind]

    @property
    def head_bytes(self) -> int:
        """From one head to the next."""
        return -(-(self.key_bytes + self.value_bytes) // 64) * 64

    @property
    def layer_bytes(self) -> int:
        """From one layer to the next."""
        return self.n_head_kv * self.head_bytes


def quantize(x: F32) -> tuple[I8, F16]:
    """(..., dim) -> codes of the same shape and d (..., dim / 32), as the q8_0 cache rounds."""
    g = np.asarray(x, np.float32).reshape(*x.shape[:-1], -1, GROUP)
    with np.errstate(all="ignore"):
        d = (np.abs(g).max(-1) / np.float32(127)).astype(np.float16)
        q = g / d[..., None].astype(np.float32)
        q = np.where(d[..., None] > 0, np.clip(np.rint(q), -127, 127), np.float32(0))
        codes = np.nan_to_num(q).astype(np.int8).reshape(x.shape)
    return codes, d


def rounded(kind: str, x: F32) -> F32:
    """What reading back gives for stored keys or values (..., dim)."""
    if kind == "f32":
        return np.asarray(x, np.float32)
    if kind == "f16":
        with np.errstate(over="ignore"):
            return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)
    q, d = quantize(x)
    out: F32 = q.astype(np.float32) * d.repeat(GROUP, -1).astype(np.float32)
    return out


def write(layout: Layout, page: U8, slot: int, k: F32, v: F32) -> None:
    """Store (n_head_kv, key_dim) and (n_head_kv, value_dim) at a slot of a page (layer_bytes,)."""
    block, lane = divmod(slot, KEYS)
    for h in range(layout.n_head_kv):
        keys, values = _head(layout, page, h)
        if layout.kind == "q8_0":
            kd, kq = _key_groups(layout, keys)
            vd, vq = _value_groups(layout, values)
            codes, d = quantize(k[h])
            kd[block, :, lane] = d
            kq[block, :, :, lane] = codes.reshape(-1, GROUP)
            codes, d = quantize(v[h])
            vd[:, slot] = d
            vq[slot] = codes
            continue
        keys_of, values_of = _plain(layout, keys, values)
        with np.errstate(over="ignore"):
            keys_of[block, :, lane] = k[h].astype(keys_of.dtype)
            values_of[slot] = 0
            values_of[slot, : layout.value_dim] = v[h].astype(values_of.dtype)


def read(layout: Layout, page: U8) -> tuple[F32, F32]:
    """Page (layer_bytes,) -> keys (64, n_head_kv, key_dim) and values (64, n_head_kv, value_dim)."""
    k = np.empty((POSITIONS, layout.n_head_kv, layout.key_dim), np.float32)
    v = np.empty((POSITIONS, layout.n_head_kv, layout.value_dim), np.float32)
    for h in range(layout.n_head_kv):
        keys, values = _head(layout, page, h)
        if layout.kind == "q8_0":
            kd, kq = _key_groups(layout, keys)
            vd, vq = _value_groups(layout, values)
            with np.errstate(all="ignore"):
                strips = kd[:, :, None].astype(np.float32) * kq.astype(np.float32)
                v[:, h] = vq.astype(np.float32) * vd.T.astype(np.float32).repeat(GROUP, 1)
            strips = strips.reshape(BLOCKS, layout.key_dim, KEYS)
        else:
            keys_of, values_of = _plain(layout, keys, values)
            strips = keys_of.astype(np.float32)
            v[:, h] = values_of[:, : layout.value_dim]
        k[:, h] = strips.transpose(0, 2, 1).reshape(POSITIONS, layout.key_dim)
    return k, v


def _head(layout: Layout, page: U8, h: int) -> tuple[U8, U8]:
    keys = page[h * layout.head_bytes :][: layout.key_bytes]
    values = page[h * layout.head_bytes + layout.key_bytes :][: layout.value_bytes]
    return keys, values


def _plain(
    layout: Layout, keys: U8, values: U8
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    dtype: type[np.floating] = np.float16 if layout.kind == "f16" else np.float32
    k: NDArray[np.floating] = keys.view(dtype).reshape(BLOCKS, layout.key_dim, KEYS)
    v: NDArray[np.floating] = values.view(dtype).reshape(POSITIONS, layout.value_row)
    return k, v


def _key_groups(layout: Layout, keys: U8) -> tuple[F16, I8]:
    g = keys.reshape(BLOCKS, layout.key_dim // GROUP, KEYS * (GROUP + 2))
    d = g[..., : 2 * KEYS].view(np.float16)
    return d, g[..., 2 * KEYS :].view(np.int8).reshape(*d.shape[:2], GROUP, KEYS)


def _value_groups(layout: Layout, values: U8) -> tuple[F16, I8]:
    n = layout.value_dim // GROUP * POSITIONS * 2
    d = values[:n].view(np.float16).reshape(-1, POSITIONS)
    return d, values[n:].view(np.int8).reshape(POSITIONS, layout.value_dim)
