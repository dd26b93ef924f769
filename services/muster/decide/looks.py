"""Nodes that look alike in numbers, judged once for all of them.

    look        free amounts, offered amounts, cards that can be given whole and are offered: what a pod without shares of
                cards meets on a node, predicates and host ports apart
    table       a value for each look (how many pods fit, how full the node would be), worked out when a look is first met

A change of the room moves single rows to other looks, once for all tables; a value by row is then one gather.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import Fleet, Ints, Mask

Values = npt.NDArray[Any]
MANY_PARTS = 8
"""When more than one row in so many moved, all are gathered again."""


class Numbers(NamedTuple):
    """Rows, or looks, as a pod meets them; all arrays have the same first axis."""

    free: Ints
    """[, dimension]"""
    total: Ints
    whole_free: Ints
    allocatable_cards: Ints


class Looks:
    """The looks of a room's rows. ``numbers`` are the room's own arrays, which change under it."""

    def __init__(self, fleet: Fleet, numbers: Numbers, seen: int) -> None:
        self._numbers = numbers
        self._seen = seen
        self._kind: list[int] = _kinds(fleet).tolist()
        states = np.concatenate([_kinds(fleet)[:, None], numbers.whole_free[:, None], numbers.free], axis=1)
        first, self.of_row = unique_states(states)
        self._known = {self._key(int(row)): look for look, row in enumerate(first.tolist())}
        self._looks = Numbers(*(array[first].copy() for array in numbers))
        self._size = first.size
        self._tables: dict[object, tuple[int, Values]] = {}
        self._moved: list[int] = []
        """Rows in the order in which they came to another look."""
        self._by_row: dict[object, tuple[int, Values]] = {}

    def _key(self, row: int) -> tuple[int, int, bytes]:
        return self._kind[row], int(self._numbers.whole_free[row]), self._numbers.free[row].tobytes()

    def follow(self, changed: list[int]) -> None:
        """Move the rows that changed since the last time; ``changed`` is the room's own list, which only grows."""
        if self._seen == len(changed):
            return
        rows = changed[self._seen :] if len(changed) - self._seen < 3 else sorted(set(changed[self._seen :]))
        self._seen = len(changed)
        new: list[int] = []
        known = self._known
        for row in rows:
            key = self._key(row)
            look = known.get(key)
            if look is None:
                look = known[key] = self._size + len(new)
                new.append(row)
            self.of_row[row] = look
        self._moved += rows
        if new:
            self._add(new)

    def _add(self, rows: list[int]) -> None:
        needed = self._size + len(rows)
        held = self._looks.whole_free.size
        if needed > held:
            # Twice as many as needed, so that growing stays cheap.
            more = 2 * needed - held
            self._looks = Numbers(
                *(np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]) for array in self._looks)
            )
        for mine, theirs in zip(self._looks, self._numbers, strict=True):
            mine[self._size : needed] = theirs[rows]
        self._size = needed

    def values(
        self,
        key: object,
        compute: Callable[[Numbers], Values],
        rows: Mask | None = None,
        outside: float = 0,
        *,
        own: bool = False,
    ) -> Values:
        """The value of every row, as ``compute`` gives it for looks; ``outside`` where ``rows`` leave a row out.

        ``key`` says which value of which rows it is; ``own``: the caller is done with the last answer, which may be written over.
        """
        done, table = self._tables.get(key, (0, None))
        if done < self._size:
            fresh = compute(Numbers(*(array[done : self._size] for array in self._looks)))
            table = fresh if table is None else np.concatenate([table, fresh])
            self._tables[key] = self._size, table
        assert table is not None
        at, found = self._by_row.get(key, (-1, None))
        now = len(self._moved)
        if at == now and found is not None:
            return found
        if found is None or (now - at) * MANY_PARTS > self.of_row.size:
            found = table[self.of_row] if rows is None else np.where(rows, table[self.of_row], outside)
        else:
            found = found if own else found.copy()
            moved = self._moved[at:]
            fresh = table[self.of_row[moved]]
            found[moved] = fresh if rows is None else np.where(rows[moved], fresh, outside)
        self._by_row[key] = now, found
        return found


def _kinds(fleet: Fleet) -> Ints:
    """A number for each combination of what nodes offer."""
    found = fleet.memo.get("kinds of nodes")
    if found is None:
        found = unique_states(np.concatenate([fleet.allocatable_cards[:, None], fleet.total], axis=1))[1]
        fleet.memo["kinds of nodes"] = found
    assert isinstance(found, np.ndarray)
    return found


def unique_states(states: Ints) -> tuple[Ints, Ints]:
    """A row of each different state, and the number of every row's state."""
    # One number for each state (wrapping multiplication by powers of an odd number); two states may share one by chance.
    hashes = np.cumprod(np.full(states.shape[1], 0x5851F42D4C957F2D, dtype=np.int64))
    _, first, number = np.unique(states @ hashes, return_index=True, return_inverse=True)
    if not (states[first][number] == states).all():
        _, first, number = np.unique(states, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), number.ravel().astype(np.int64)
