"""Calls -> native memory: the arguments of every kernel, and the rows that the runner walks.

A tape exists for every pair of sizes (one, few, many tokens; one, few, many outputs) that has been
asked for; all share one block of arguments. `prepare` sets what follows the number of tokens and
outputs, and what follows positions; a decode step changes neither the one nor, until a span of 512
positions begins, the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.graph.calls import SIZES as ALL_SIZES
from gguf_runtime.graph.calls import Call, Cost, Size, Times, Together, Work, size_of, word
from gguf_runtime.graph.schedule import Heads, Items
from gguf_runtime.kernels import attention, gate
from quant.jit import Spec
from quant.memory import allocate
from quant.pool import Parts, Pool, Row, Tape

I64 = NDArray[np.int64]

SLOT_BYTES = 256  # arguments of one call, room for 32 slots
_GATE = (gate.GATE_FN, gate.GATE_ARGS, gate.UP_FN, gate.UP_ARGS)


@dataclass(frozen=True, slots=True)
class RowFacts:
    """A row of the tape, for the profile."""

    name: str
    op: str
    counts: str
    costs: tuple[Cost, ...]


def specs_of_calls(calls: Sequence[Call | Together]) -> list[Spec]:
    """Every kernel that the calls need, each once."""
    return list(dict.fromkeys(s for c in _flat(calls) for s in c.specs))


def _flat(calls: Sequence[Call | Together]) -> Iterator[Call]:
    """Every call with arguments of its own: parts of a row, and the calls inside a call."""
    for item in calls:
        for call in item.calls if isinstance(item, Together) else (item,):
            yield call
            yield from call.inner


class ModelTape:
    """All rows of a model, ready to run.

    Args:
        calls: from `graph.bind.Binder`, in order.
        kernels: addresses of `specs_of_calls(calls)`.
        heads: the kinds of attention that the calls name.
    """

    def __init__(
        self,
        pool: Pool,
        calls: Sequence[Call | Together],
        kernels: Mapping[Spec, int],
        heads: Sequence[Heads],
    ) -> None:
        self._pool, self._calls, self._kernels = pool, list(calls), kernels
        self.heads = tuple(heads)
        flat = list(_flat(calls))
        self._args = (
            allocate(SLOT_BYTES * max(1, len(flat))).view(np.int64).reshape(-1, SLOT_BYTES // 8)
        )
        self._where = {id(c): k for k, c in enumerate(flat)}
        # Slots that follow the tokens or outputs of a step: (where, factor).
        follow: dict[str, tuple[list[int], list[int]]] = {"tokens": ([], []), "outputs": ([], [])}
        for k, call in enumerate(flat):
            for slot, value in enumerate(call.args):
                if isinstance(value, Times):
                    index, factor = follow[value.counts]
                    index.append(k * (SLOT_BYTES // 8) + slot)
                    factor.append(value.factor)
                else:
                    self._args[k, slot] = word(value)
        self._follow = {
            c: (np.array(i, np.int64), np.array(f, np.int64)) for c, (i, f) in follow.items()
        }
        self._tapes: dict[tuple[Size, Size], Tape] = {}
        self._partials = [np.zeros(0, np.uint8) for _ in heads]
        self._items: list[Items] = []
        # What the arguments stand for now; None while they change.
        self._sizes: tuple[int, int] | None = None
        self._pointed: tuple[Size, Size] | None = None
        self._told: set[tuple[Size, Size]] = set()  # tapes that have the counts of `_counts`
        self._counts = np.zeros(len(self._calls), np.int64)

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def rows(self) -> list[RowFacts]:
        """What each row is."""
        out = []
        for item in self._calls:
            calls = item.calls if isinstance(item, Together) else (item,)
            costs = tuple(cost for c in calls for cost in c.costs)
            out.append(RowFacts(item.name, calls[0].op, calls[0].counts, costs))
        return out

    def prepare(self, tokens: int, outputs: int, items: Sequence[Items]) -> Tape:
        """The tape of a step of so many tokens and outputs; items: one per kind of heads."""
        size = (tokens, outputs)
        resized = size != self._sizes
        if resized:
            self._sizes = None  # until all of it is done: an exception may strike anywhere
            flat = self._args.reshape(-1)
            for counts, n in (("tokens", tokens), ("outputs", outputs)):
                index, factor = self._follow[counts]
                flat[index] = factor * n
        if self._attend(items) or resized:
            self._told.clear()
            fresh = [self._tasks(c, tokens, outputs) for c in self._calls]
            self._counts = np.array(fresh, np.int64)
            self._sizes = size
        key = (size_of(tokens), size_of(outputs))
        tape = self._tapes.get(key)
        if tape is None:
            tape = self._tapes[key] = self._make(*key)
        if key not in self._told:
            tape.set_tasks(self._counts)
            self._told.add(key)
        if self._pointed != key:
            self._pointed = None
            self._point_inner(key)
            self._pointed = key
        return tape

    def _tasks(self, item: Call | Together, tokens: int, outputs: int) -> int:
        if isinstance(item, Together):
            return sum(self._tasks(c, tokens, outputs) for c in item.calls)
        n = tokens if item.counts == "tokens" else outputs
        if n == 0:
            return 0
        match item.tasks:
            case Times(counts=counts, factor=factor):
                return factor * (tokens if counts == "tokens" else outputs)
            case Work(what=what, kind=kind, factor=factor):
                return factor * len(getattr(self._items[kind], what))
        return int(item.tasks)

    def _attend(self, items: Sequence[Items]) -> bool:
        """Point the attention calls at their items and partial results; whether they are new."""
        if len(items) == len(self._items) and all(map(is_, items, self._items)):
            return False
        self._sizes, self._items = None, []
        for kind, (work, heads) in enumerate(zip(items, self.heads, strict=True)):
            need = 4 * work.n_slots * attention.partial_floats(heads.n_head, heads.head_dim)
            if need > len(self._partials[kind]):
                self._partials[kind] = allocate(2 * need)
        for item in self._calls:
            if isinstance(item, Call) and item.kind >= 0:
                args = self._args[self._where[id(item)]]
                partial = int(self._partials[item.kind].ctypes.data)
                work = items[item.kind]
                if item.op == "attention":
                    args[attention.ITEMS // 8] = work.items.ctypes.data
                    args[attention.PARTIAL // 8] = partial
                else:
                    args[attention.M_ROWS // 8] = work.merges.ctypes.data
                    args[attention.M_PARTIAL // 8] = partial
        self._items = list(items)
        return True

    # ---- rows ----------------------------------------------------------------------------------

    def _address(self, call: Call) -> int:
        """Where the arguments of a call stand."""
        return int(self._args.ctypes.data) + SLOT_BYTES * self._where[id(call)]

    def _fn(self, call: Call, sizes: tuple[Size, Size]) -> int:
        """The kernel of a call for these sizes of tokens and outputs."""
        size = sizes[0] if call.counts == "tokens" else sizes[1]
        return self._kernels[call.specs[ALL_SIZES.index(size)]]

    def _make(self, tokens: Size, outputs: Size) -> Tape:
        sizes = (tokens, outputs)
        rows: list[Row | Parts] = []
        for item in self._calls:
            if isinstance(item, Together):
                parts = [(self._fn(c, sizes), self._address(c), int(_fixed(c))) for c in item.calls]
                rows.append(Parts(parts))
            else:
                rows.append(Row(self._fn(item, sizes), self._address(item), 0))
        return self._pool.tape(rows)

    def _point_inner(self, sizes: tuple[Size, Size]) -> None:
        """Kernels and arguments of the calls inside calls."""
        for item in self._calls:
            if isinstance(item, Call) and item.inner:
                values = [x for c in item.inner for x in (self._fn(c, sizes), self._address(c))]
                args = self._args[self._where[id(item)]]
                for slot, value in zip(_GATE, values, strict=True):
                    args[slot // 8] = value


def _fixed(call: Call) -> int:
    assert isinstance(call.tasks, int), call.name
    return call.tasks
