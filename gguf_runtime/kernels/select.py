"""The k largest of many logits, as 64-bit keys that have no ties: helpers that kernels call.

key    high half: the logit as an integer of the same order (-0 counts as 0); low half: 2^32 - 1 - index,
       so of equal logits the lower index is the larger key. Distinct keys make every result unique,
       whatever the path of the selection.
"""

from __future__ import annotations

from quant.simd import Addr, v

LOW = 0xFFFFFFFF
NEGATIVE_ZERO = -0x80000000
MAGNITUDE = 0x7FFFFFFF


def key_of(bits: int, index: int) -> int:
    """Key of a float32 given by its bits (sign extended) and its index."""
    if bits == NEGATIVE_ZERO:
        bits = 0
    if bits < 0:
        bits ^= MAGNITUDE
    return (bits << 32) + (LOW - index)


def key_index(key: int) -> int:
    """The index of a key."""
    return LOW - (key & LOW)


def key_logit(key: int) -> float:
    """The float32 of a key."""
    bits = key >> 32
    if bits < 0:
        bits ^= MAGNITUDE
    return v.f32_bits(bits)


def select_largest(a: Addr, n: int, k: int) -> None:
    """Move the k largest of n keys to the front, in any order (Hoare's selection)."""
    first, last = 0, n - 1
    while first < last:
        pivot = v.ld_i64(a + 8 * ((first + last) >> 1))
        i, j = first, last
        while i <= j:
            while v.ld_i64(a + 8 * i) > pivot:
                i += 1
            while v.ld_i64(a + 8 * j) < pivot:
                j -= 1
            if i <= j:
                x = v.ld_i64(a + 8 * i)
                v.st_i64(a + 8 * i, v.ld_i64(a + 8 * j))
                v.st_i64(a + 8 * j, x)
                i += 1
                j -= 1
        if k - 1 <= j:
            last = j
        elif k - 1 >= i:
            first = i
        else:
            break


def sort_falling(a: Addr, n: int) -> None:
    """Sort n keys, largest first: by insertion where that is quick, else by a heap of the smallest."""
    if n <= 64:
        for i in range(1, n):
            x = v.ld_i64(a + 8 * i)
            j = i
            while j > 0 and v.ld_i64(a + 8 * (j - 1)) < x:
                v.st_i64(a + 8 * j, v.ld_i64(a + 8 * (j - 1)))
                j -= 1
            v.st_i64(a + 8 * j, x)
        return
    heap = n // 2
    for k in range(heap + n - 1):  # first the heap is made, then emptied from its root
        end = n
        if k >= heap:
            end = n - 1 - (k - heap)
            x = v.ld_i64(a)
            v.st_i64(a, v.ld_i64(a + 8 * end))
            v.st_i64(a + 8 * end, x)
        sift(a, max(heap - 1 - k, 0), end)


def sift(a: Addr, i: int, n: int) -> None:
    """Let key i sink to its place in a heap of n whose root is the smallest."""
    x = v.ld_i64(a + 8 * i)
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and v.ld_i64(a + 8 * (child + 1)) < v.ld_i64(a + 8 * child):
            child += 1
        if v.ld_i64(a + 8 * child) >= x:
            break
        v.st_i64(a + 8 * i, v.ld_i64(a + 8 * child))
        i = child
    v.st_i64(a + 8 * i, x)
