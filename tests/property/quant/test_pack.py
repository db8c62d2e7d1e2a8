"""Strips: no bit is lost, and every value stands where the layout says."""

import numpy as np
import pytest

from quant.types import TYPES

every_type = pytest.mark.parametrize("t", TYPES.values(), ids=lambda t: t.name)
quantized = pytest.mark.parametrize(
    "t", [t for t in TYPES.values() if t.kind != "float"], ids=lambda t: t.name
)


def random_blocks(t, rows, n_blocks, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, n_blocks, t.bytes), dtype=np.uint8)


@every_type
@pytest.mark.parametrize("row", [0, 7, 15])
def test_pack_moves_every_bit_to_a_place_of_its_own(t, row):
    bits = 8 * t.bytes
    blocks = np.zeros((16 * bits, 1, t.bytes), np.uint8)
    blocks[16 * np.arange(bits) + row, 0] = np.packbits(np.eye(bits, dtype=np.uint8), -1)

    places = np.unpackbits(t.format.pack(blocks).reshape(bits, -1), axis=-1)

    assert (places.sum(1) == 1).all()
    assert len(np.unique(places.argmax(1))) == bits


@every_type
def test_pack_places_bits_whatever_the_others_are(t):
    a, b = random_blocks(t, 16, 2, 1), random_blocks(t, 16, 2, 2)

    assert np.array_equal(t.format.pack(a ^ b), t.format.pack(a) ^ t.format.pack(b))


@every_type
def test_pack_pads_rows_with_zeros_to_sixteen(t):
    blocks = random_blocks(t, 21, 3)
    padded = np.concatenate([blocks, np.zeros((11, 3, t.bytes), np.uint8)])

    strips = t.format.pack(blocks)

    assert strips.shape == (2, 3, 16 * t.bytes)
    assert strips.dtype == np.uint8
    assert strips.flags.c_contiguous
    assert np.array_equal(strips, t.format.pack(padded))


@every_type
def test_pack_gives_the_same_strips_in_slabs_and_one_by_one(t):
    blocks = random_blocks(t, 600, 4096 // t.values)

    whole = t.format.pack(blocks)

    one_by_one = [t.format.pack(blocks[i : i + 16]) for i in range(0, 600, 16)]
    assert np.array_equal(whole, np.concatenate(one_by_one))


@every_type
def test_pack_takes_a_view_of_mapped_rows(t):
    wide = random_blocks(t, 40, 4)
    wide.setflags(write=False)

    assert np.array_equal(t.format.pack(wide[3:25, 1:3]), t.format.pack(wide[3:25, 1:3].copy()))


def unpack_numpy(t, strip):
    """One block of 16 rows -> codes (16, values) and the planes in front, byte by byte."""
    at = 0

    def take(n):
        nonlocal at
        at += n
        return strip[at - n : at].astype(int)

    front = {"d": take(32)}
    if t.minimum:
        front["dm"] = take(32)
    if t.kind == "super":
        front["scales"] = take(16 * (16 if t.group == 16 else 12))
    codes = np.zeros((16, t.values), int)
    lanes = [(r, j) for r in range(16) for j in range(4)]  # byte r * 4 + j of a unit
    if t.bits == 8:
        for s in range(t.values // 4):
            for (r, j), byte in zip(lanes, take(64), strict=True):
                codes[r, 4 * s + j] = byte
    run = {4: 8, 5: 32, 6: 16, 8: t.values}[t.bits]  # k between two units of high bits
    for k in range(0, t.values if t.bits < 8 else 0, run):
        for u in range(k, k + run, 8):
            for (r, j), byte in zip(lanes, take(64), strict=True):
                codes[r, u + j], codes[r, u + 4 + j] = byte & 15, byte >> 4
        width = t.bits - 4
        for (r, j), byte in zip(lanes, take(64) if width else (), strict=bool(width)):
            for s in range(run // 4):
                codes[r, k + 4 * s + j] |= (byte >> width * s & (1 << width) - 1) << 4
    assert at == len(strip)
    return codes, front


@quantized
def test_codes_of_a_strip_stand_where_the_layout_says(t):
    blocks = random_blocks(t, 16, 2)
    strips = t.format.pack(blocks)

    for b in range(2):
        codes, _ = unpack_numpy(t, strips[0, b])

        expected = t.format.ints(blocks).codes.reshape(16, 2, t.values)[:, b] + t.center
        assert np.array_equal(codes, expected & 255)


@quantized
def test_scales_of_sixteen_rows_stand_side_by_side(t):
    blocks = random_blocks(t, 16, 1)
    ints = t.format.ints(blocks)

    _, front = unpack_numpy(t, t.format.pack(blocks)[0, 0])

    d = front["d"].astype(np.uint8).view(np.float16).astype(np.float32)
    assert np.array_equal(d, ints.d[:, 0], equal_nan=True)
    if t.minimum:
        dm = front["dm"].astype(np.uint8).view(np.float16).astype(np.float32)
        sign = -1 if t.kind == "small" else 1  # a small type's minimum is added
        assert np.array_equal(dm * sign, ints.dm[:, 0], equal_nan=True)
    if t.kind == "super":
        start = 192 if t.group == 16 else 4
        planes = front["scales"].reshape(-1, 16)
        assert np.array_equal(planes.T, blocks[:, 0, start : start + len(planes)])


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_values_of_float_types_stand_k_by_k(name):
    t = TYPES[name]
    blocks = random_blocks(t, 20, 5)

    strips = t.format.pack(blocks).reshape(2, 5, 16, t.bytes)

    for row in range(20):
        assert np.array_equal(strips[row // 16, :, row % 16], blocks[row])
