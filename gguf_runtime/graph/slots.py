"""Which buffers may share memory: by lifetime, from the first row that writes to the last that reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gguf_runtime.graph.rows import Buffer, Row

# Bytes per value, near enough to choose a slot by; the tape knows the sizes.
_BYTES = {"f32": 4.0, "spans": 4.0, "a8": 1.6, "a16": 3.0}


def assign_slots(
    rows: Sequence[Row], buffers: Sequence[Buffer], pinned: Collection[Buffer]
) -> tuple[int, ...]:
    """A slot for every buffer; pinned ones keep theirs to the end.

    A buffer takes the slot of one that it may replace in place and that dies in the same row, else
    the free slot that fits best, else a new one.
    """
    used = [(row.outputs, row.inputs) for row in rows]
    last_use = {b: i for i, (outputs, inputs) in enumerate(used) for b in (*outputs, *inputs)}
    last_use.update(dict.fromkeys(pinned, len(rows)))
    slot: dict[Buffer, int] = {}
    sizes: list[float] = []
    free: dict[str, set[int]] = {"tokens": set(), "outputs": set()}
    for i, (row, (outputs, inputs)) in enumerate(zip(rows, used, strict=True)):
        dying = {b for b in inputs if last_use[b] == i}
        taken: set[Buffer] = set()
        for out in outputs:
            if out in slot:
                continue
            old = next(
                (
                    b
                    for written, b in row.in_place
                    if written is out
                    and b in dying - taken
                    and inputs.count(b) == 1
                    and (b.width, b.counts, b.format) == (out.width, out.counts, out.format)
                ),
                None,
            )
            if old is not None:
                slot[out] = slot[old]
                taken.add(old)
                continue
            slot[out] = _place(out, free[out.counts], sizes)
        for b in dying - taken:
            free[b.counts].add(slot[b])
        for out in outputs:  # written and never read
            if last_use[out] == i:
                free[out.counts].add(slot[out])
    return tuple(slot[b] for b in buffers)


def _place(buffer: Buffer, free: set[int], sizes: list[float]) -> int:
    size = _BYTES[buffer.format] * buffer.width
    if not free:
        sizes.append(size)
        return len(sizes) - 1
    best = min(free, key=lambda s: (sizes[s] < size, abs(sizes[s] - size), s))
    free.remove(best)
    sizes[best] = max(sizes[best], size)
    return best
