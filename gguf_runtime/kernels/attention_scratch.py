"""What a thread of attention keeps in its scratch, and the slots that spans leave.

In this order: addresses of queries, positions, m and l, M and L, scores and their addresses, what
tiles share, scales of values (up to 512 of them per position), out and O.
"""

from __future__ import annotations

from gguf_runtime.cache.pages import POSITIONS
from gguf_runtime.kernels.attention_column import COLUMNS, STATE_BYTES
from gguf_runtime.kernels.attention_shared import SHARED_BYTES
from quant.simd import LANES

POSITIONS_AT = 8 * COLUMNS
STATE_AT = POSITIONS_AT + 8 * COLUMNS
MERGED_AT = STATE_AT + STATE_BYTES
SCORES_AT = MERGED_AT + STATE_BYTES
WEIGHTS_AT = SCORES_AT + 4 * POSITIONS * COLUMNS
SHARED_AT = WEIGHTS_AT + 8 * COLUMNS
SCALES_AT = SHARED_AT + SHARED_BYTES


def row_floats(value_dim: int) -> int:
    """Values of one head, rounded up to whole strips."""
    return -(-value_dim // LANES) * LANES


def scratch_bytes(value_dim: int) -> int:
    """Bytes that one thread needs."""
    scales = 4 * POSITIONS * -(-value_dim // 32)
    return SCALES_AT + scales + 2 * COLUMNS * 4 * row_floats(value_dim)


def partial_floats(n_head: int, value_dim: int) -> int:
    """Float32 that one slot of `partial` takes."""
    return n_head * (LANES + row_floats(value_dim))
